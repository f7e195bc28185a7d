// Package hookbed is the test bed of package admission: hooks, and a resource with conversions. It runs on a real
// control plane and on the in-memory API server.
package hookbed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// Long is the longest timeout that the API server accepts for a hook. A busy machine answers within it.
const Long = 30 * time.Second

// Maps is an admission request about a ConfigMap.
type Maps = admission.Request[corev1.ConfigMap]

// Bench is a test with a client of an API server.
type Bench struct {
	T   *testing.T
	Ctx context.Context //nolint:containedctx // of the test
	API *kubernetes.Clientset
}

// New returns a bench whose context ends after testlimit.Wait.
func New(t *testing.T, cfg *rest.Config) *Bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	t.Cleanup(cancel)
	return &Bench{t, ctx, kubernetes.NewForConfigOrDie(cfg)}
}

// Eventually calls fn until it returns "", for conditions that the API server reaches with a delay.
func (b *Bench) Eventually(what string, fn func() (lacks string)) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, testlimit.Wait)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		lacks := fn()
		if lacks == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.T.Fatalf("%s: %s", what, lacks)
		}
	}
}

// Bundle returns the caBundle of the first validating hook in a configuration.
func (b *Bench) Bundle(configuration string) []byte {
	b.T.Helper()
	c, err := b.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(b.Ctx, configuration,
		metav1.GetOptions{})
	if err != nil {
		b.T.Fatal(err)
	}
	return c.Webhooks[0].ClientConfig.CABundle
}

// Caller returns a client that trusts the certificate authorities of a bundle, as the API server does.
func Caller(bundle []byte) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return &http.Client{
		Timeout: testlimit.Wait,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true, ExpectContinueTimeout: testlimit.Wait,
		},
	}
}

// Send sends a body and returns the status code and the body of the response.
func Send(t *testing.T, c *http.Client, method, url, contentType, body string) (int, string) {
	t.Helper()
	code, text, err := TrySend(t.Context(), c, method, url, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	return code, text
}

// TrySend is like Send but returns the error of a failed request.
func TrySend(ctx context.Context, c *http.Client, method, url, contentType, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	r.Header.Set("Expect", "100-continue") // a refused body is not sent
	answer, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// Run runs a runtime until the test ends or stop is called.
func Run(t *testing.T, rt *fairlead.Runtime) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Text returns the text of an error, or "".
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// ConfigMap returns a ConfigMap. Each entry of data is "key=value".
func ConfigMap(name string, data ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{}}
	for _, d := range data {
		k, v, _ := strings.Cut(d, "=")
		m.Data[k] = v
	}
	return m
}

// Allow is a hook that allows all requests.
func Allow(context.Context, *Maps) error { return nil }

// Diary is a hook that records its requests, each as "OPERATION name old->new" with the versions in the data.
type Diary struct {
	mu  sync.Mutex
	all []string
}

// Validate rejects an update to an older version, and the deletion of an object with keep=yes.
func (d *Diary) Validate(_ context.Context, r *Maps) error {
	d.record(r)
	if r.User.Username == "" || r.UID == "" || r.Namespace == "" {
		return fmt.Errorf("user %q, uid %q, namespace %q", r.User.Username, r.UID, r.Namespace)
	}
	if r.Operation == admission.Delete && r.Old.Data["keep"] == "yes" {
		return errors.New("it is kept")
	}
	if r.Old != nil && r.Object != nil && r.Old.Data["v"] > r.Object.Data["v"] {
		return errors.New("versions go up")
	}
	return nil
}

func (d *Diary) record(r *Maps) {
	d.mu.Lock()
	defer d.mu.Unlock()
	version := func(m *corev1.ConfigMap) string {
		if m == nil {
			return "none"
		}
		return m.Data["v"]
	}
	line := fmt.Sprintf("%s %s %s->%s", r.Operation, r.Name, version(r.Old), version(r.Object))
	if r.DryRun {
		line += " dry"
	}
	d.all = append(d.all, line)
}

// Take returns the requests since the last call.
func (d *Diary) Take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.all = nil }()
	return slices.Clone(d.all)
}

// Answer is a hook whose response depends on the entry "do" of the object.
func Answer(ctx context.Context, r *Maps) error {
	data := field.NewPath("data")
	switch r.Object.Data["do"] {
	case "forbid":
		return errors.New("not today")
	case "api":
		return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, r.Name, errors.New("taken"))
	case "fields":
		return field.ErrorList{
			field.Required(data.Key("x"), "say it"), field.Invalid(data.Key("y"), "2", "too large"),
		}.ToAggregate()
	case "joined":
		return errors.Join(field.Required(data.Key("x"), "say it"), errors.New("and more"))
	case "warn":
		r.Warn("old: %s", r.Object.Data["do"])
		return nil
	case "warn and forbid":
		r.Warn("look out")
		return errors.New("no")
	case "panic":
		panic("broken function")
	case "exit":
		goruntime.Goexit()
	case "undecided":
		return admission.Undecided(errors.New("the oracle is silent"))
	case "late":
		<-ctx.Done()
		return fmt.Errorf("waited: %w", ctx.Err())
	}
	r.Object.Data["lost"] = "yes"
	return nil
}

// Change is a hook that adds a label, changes the entry "v" and drops the entry "drop". It rejects an object without
// "v".
func Change(_ context.Context, r *Maps) error {
	if r.Object.Data["v"] == "" {
		return errors.New("no version")
	}
	if r.Object.Labels == nil {
		r.Object.Labels = map[string]string{}
	}
	r.Object.Labels["team/name"] = "a"
	r.Object.Data["v"] += "!"
	delete(r.Object.Data, "drop")
	r.Warn("changed")
	return nil
}
