package live

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The proxy requests JSON instead of binary encodings, and otherwise only what the subject requested.
func TestReadable(t *testing.T) {
	for accept, want := range map[string]string{
		"application/json":                                                                "application/json",
		"application/json;as=Table, */*":                                                  "application/json;as=Table, */*",
		"application/vnd.kubernetes.protobuf":                                             "application/json",
		"application/vnd.kubernetes.protobuf,application/json":                            "application/json",
		"application/cbor, application/json":                                              "application/json",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1": "application/json",
		"application/vnd.kubernetes.protobuf;as=A,application/json;as=A,*/*":              "application/json;as=A, */*",
		"":           "application/json",
		"text/plain": "text/plain, application/json",
	} {
		h := http.Header{"Accept": {accept}}
		if readable(h); h.Get("Accept") != want {
			t.Errorf("%q becomes %q, want %q", accept, h.Get("Accept"), want)
		}
	}
}

// Of any amount of output only the end is stored, and only the last lines are shown.
func TestOutput(t *testing.T) {
	var o output
	if o.String() != "" {
		t.Errorf("the text without output is %q", &o)
	}
	line := strings.Repeat("x", 1000)
	for i := range 1000 {
		if n, err := fmt.Fprintln(&o, i, line); err != nil || n < len(line) {
			t.Fatalf("%d bytes are accepted, error %v", n, err)
		}
	}
	if len(o.b) > 2*kept+2*len(line) {
		t.Errorf("%d bytes are kept", len(o.b))
	}
	shown := strings.Split(o.String(), "\n  ")
	if len(shown) != lines+1 || !strings.HasPrefix(shown[lines], "999 ") || !strings.HasPrefix(shown[1], "985 ") {
		t.Errorf("%d lines are shown, the last one %.10q", len(shown)-1, shown[len(shown)-1])
	}
	fmt.Fprint(&o, "panic: old\n\t/a.go:1\npanic: new\n"+strings.Repeat("main.f()\n\t/b.go:2\n", 20))
	shown = strings.Split(o.String(), "\n  ")
	if len(shown) != lines+2 || shown[1] != "panic: new" || shown[lines+1] != "…" {
		t.Errorf("of a crash these lines are shown: %q", shown)
	}
	fmt.Fprintln(&o, "the end") // of another process
	if shown = strings.Split(o.String(), "\n  "); shown[lines] != "the end" {
		t.Errorf("of another process these lines are shown: %q", shown)
	}
	var short output
	fmt.Fprint(&short, "flag provided but not defined: -x\n"+strings.Repeat("  -flag\n", 100))
	if got := short.String(); !strings.HasPrefix(got, "\nits output begins with:\n  flag provided but not defined: -x\n"+
		"its output ends with:\n    -flag\n") || strings.Count(got, "-flag") != lines {
		t.Errorf("of the usage of a program it shows: %s", got)
	}
	if _, err := o.Write(make([]byte, 10*kept)); err != nil || len(o.b) > 2*kept {
		t.Errorf("%d bytes are kept of one large write, error %v", len(o.b), err)
	}
}

// A new control plane is used only when its discovery has the kinds of the subject. A busy API server needs a while.
func TestServedWith(t *testing.T) {
	var asked atomic.Int64
	answers := map[string]string{
		"/api":                 `{"versions":["v1"]}`,
		"/api/v1":              `{"groupVersion":"v1","resources":[{"name":"pods","kind":"Pod","verbs":["watch"]}]}`,
		"/apis/example.com/v1": `{"groupVersion":"example.com/v1","resources":[{"name":"webs","kind":"Web","verbs":["watch"]}]}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch answer := answers[r.URL.Path]; {
		case answer != "":
			_, _ = fmt.Fprint(w, answer)
		case r.URL.Path != "/apis":
			http.NotFound(w, r)
		case asked.Add(1) < 3:
			_, _ = fmt.Fprint(w, `{"groups":[]}`)
		default:
			v := `{"groupVersion":"example.com/v1","version":"v1"}`
			_, _ = fmt.Fprintf(w, `{"groups":[{"name":"example.com","versions":[%s],"preferredVersion":%s}]}`, v, v)
		}
	}))
	defer s.Close()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"group": "example.com", "names": map[string]any{"plural": "webs"}},
	}}
	got, err := servedWith(t.Context(), &rest.Config{Host: s.URL}, []*unstructured.Unstructured{crd})
	if err != nil || len(got) != 2 || asked.Load() != 3 {
		t.Errorf("after %d requests the resources are %v, error %v", asked.Load(), got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	crd.Object["spec"] = map[string]any{"group": "other.com"}
	if got, err := servedWith(ctx, &rest.Config{Host: s.URL}, []*unstructured.Unstructured{crd}); err == nil {
		t.Errorf("without the kind the resources are %v", got)
	}
}

// The processes of all runs reach the API server at the same address, and two at the same time at two addresses.
func TestAddressesRepeat(t *testing.T) {
	target, err := url.Parse("http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	var known ports
	start := func() *proxy {
		p, err := newProxy(&known, nil, target, http.DefaultTransport, http.DefaultTransport)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := start()
	first.close()
	second, other := start(), start()
	if second.address != first.address || other.address == first.address {
		t.Errorf("the addresses are %s, then %s and %s", first.address, second.address, other.address)
	}
	second.close()
	other.close()
	taken, err := net.Listen("tcp", first.address)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	third := start()
	defer third.close()
	if third.address != other.address {
		t.Errorf("instead of a used address the address is %s, want %s", third.address, other.address)
	}
}
