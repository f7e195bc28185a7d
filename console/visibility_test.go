package console_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/reconcile"
)

// readers maps tokens to rights: each reader sees pages about the program, and the ConfigMaps of some namespaces.
type readers map[string]func(console.Access) bool

func (all readers) Caller(token string) string { return token }

func (all readers) May(_ context.Context, token string, a console.Access) error {
	if may := all[token]; may != nil && (a.Path != "" || may(a)) {
		return nil
	}
	return &console.Problem{Status: http.StatusForbidden}
}

var anyReader = readers{
	"all":  func(console.Access) bool { return true },
	"team": func(a console.Access) bool { return a.Resource == "configmaps" && a.Namespace == "team" },
	"one": func(a console.Access) bool {
		return a.Resource == "configmaps" && a.Namespace == "team" && a.Name == "bad"
	},
	"stranger": func(console.Access) bool { return false },
}

// program is a program without operations, with a server of its own and the pages that readers see. All of it runs in
// the bubble of a synctest.
type program struct {
	t      *testing.T
	server *apiserver.Server
	rt     *fairlead.Runtime
}

func newProgram(t *testing.T, declare func(*fairlead.Runtime)) *program {
	t.Helper()
	return newProgramFor(t, anyReader, declare)
}

func newProgramFor(t *testing.T, authorizer readers, declare func(*fairlead.Runtime)) *program {
	t.Helper()
	server, err := apiserver.New(apiserver.Options{Pipe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	p := &program{t: t, server: server}
	p.rt = fairlead.New(server.Config(), fairlead.WithConsole(console.Options{
		Authorizer: authorizer, SessionKey: bytes.Repeat([]byte("k"), 32),
	}))
	declare(p.rt)
	return p
}

func (p *program) run() {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.rt.Run(ctx) }()
	p.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			p.t.Error(err)
		}
	})
	if err := p.rt.WaitSynced(ctx); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) put(namespace, name string) {
	p.t.Helper()
	if _, err := p.server.Put(&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"k": "v"},
	}); err != nil {
		p.t.Fatal(err)
	}
}

// page returns the page that a reader gets.
func (p *program) page(reader, path string) string {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+reader)
	rec := httptest.NewRecorder()
	if p.rt.Handler().ServeHTTP(rec, r); rec.Code != http.StatusOK {
		p.t.Fatalf("%s as %s: %d: %s", path, reader, rec.Code, rec.Body)
	}
	return rec.Body.String()
}

// eventually waits until a page shows something to a reader.
func (p *program) eventually(reader, path, want string) string {
	p.t.Helper()
	late := time.After(testlimit.Wait)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		body := p.page(reader, path)
		if strings.Contains(body, want) {
			tick.Stop()
			return body
		}
		select {
		case <-tick.C:
		case <-late:
			p.t.Fatalf("%s never shows %q to %s: %s", path, want, reader, body)
		}
	}
}

// contents are texts that a page has or lacks for a reader.
type contents struct{ shows, hides []string }

// shown checks a page for several readers.
func (p *program) shown(path string, readers map[string]contents) {
	p.t.Helper()
	for reader, want := range readers {
		body := p.page(reader, path)
		for _, text := range want.shows {
			if !strings.Contains(body, text) {
				p.t.Errorf("%s is not shown %q: %s", reader, text, body)
			}
		}
		for _, text := range want.hides {
			if strings.Contains(body, text) {
				p.t.Errorf("%s is shown %q: %s", reader, text, body)
			}
		}
	}
}

// maps declares a controller of ConfigMaps.
func maps(rt *fairlead.Runtime, fn func(*corev1.ConfigMap) (reconcile.Result, error), opts ...reconcile.Option) {
	reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](
		func(_ context.Context, m *corev1.ConfigMap) (reconcile.Result, error) { return fn(m) },
	), append(opts, reconcile.WithoutEvents())...)
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// TestSetAside: readers who may get unreadable objects see them with their errors. Other readers see only that some
// exist, without number and names.
func TestSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, func(rt *fairlead.Runtime) {
			maps(rt, func(*corev1.ConfigMap) (reconcile.Result, error) { return reconcile.Done, nil })
		})
		for _, name := range []string{"fine", "bad"} {
			p.put("team", name)
		}
		for _, name := range []string{"secret-one", "secret-two"} {
			p.put("elsewhere", name)
		}
		for key, damage := range map[[2]string][2]string{
			{"team", "bad"}:             {`"data":{"k":"v"}`, `"data":"poison"`},  // storable, but not decodable
			{"elsewhere", "secret-one"}: {`"name":"secret-one"`, `"name":17`},     // not storable
			{"elsewhere", "secret-two"}: {`"data":{"k":"v"}`, `"data":["a","b"]`}, // storable
		} {
			if err := p.server.Poison(configMaps, key[0], key[1], func(raw []byte) []byte {
				return bytes.Replace(raw, []byte(damage[0]), []byte(damage[1]), 1)
			}); err != nil {
				t.Fatal(err)
			}
		}
		p.run()
		p.eventually("all", "/console/sources", "secret-two")
		p.eventually("all", "/console/sources", "team/bad")
		p.shown("/console/sources", map[string]contents{
			"all": {
				[]string{"team/bad", "elsewhere/secret-two", "data-since>since 20", "cannot decode", "Memory"},
				[]string{"Hidden", "team/fine"},
			},
			"team": {[]string{"team/bad", "Hidden"}, []string{"elsewhere", "secret"}},
			"one":  {[]string{"team/bad", "Hidden"}, []string{"elsewhere", "secret"}},
			"stranger": {
				[]string{"Hidden"}, []string{"team/bad", "elsewhere", "secret", "could not be read", "cannot decode"},
			},
		})
		families, err := p.rt.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		counted := 0.0
		for _, f := range families {
			if f.GetName() == "fairlead_store_quarantined_total" {
				counted = f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		if counted != 3 {
			t.Errorf("the metrics count %v of them", counted)
		}
		body := p.page("stranger", "/console/sources")
		if strings.Contains(body, "2 objects") || strings.Count(body, "Hidden") != 2 {
			t.Errorf("a stranger can count them: %s", body)
		}
	})
}

// piped is a response whose body is read while it is written.
type piped struct {
	*io.PipeWriter
	header http.Header
}

func (p *piped) Header() http.Header { return p.header }

func (p *piped) WriteHeader(int) {}

// Flush implements http.Flusher: a pipe keeps nothing back.
func (p *piped) Flush() {}

// SetWriteDeadline is for http.ResponseController. The reader of a pipe is never late.
func (p *piped) SetWriteDeadline(time.Time) error { return nil }

// TestRefusedOnce: updates of a page do not repeat the reviews of objects that its reader may not see.
func TestRefusedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var questions atomic.Int32
		asking := readers{"stranger": func(console.Access) bool { questions.Add(1); return false }}
		p := newProgramFor(t, asking, func(rt *fairlead.Runtime) {
			maps(rt, func(*corev1.ConfigMap) (reconcile.Result, error) { return reconcile.Retry(errors.New("no luck")) },
				reconcile.MaxInterval(-1))
		})
		p.put("team", "fails")
		p.run()
		ctx, leave := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/console/live/controllers", nil)
		r.Header.Set("Authorization", "Bearer stranger")
		read, write := io.Pipe()
		var serving sync.WaitGroup
		serving.Go(func() {
			p.rt.Handler().ServeHTTP(&piped{header: http.Header{}, PipeWriter: write}, r)
			_ = write.Close()
		})
		defer serving.Wait()
		defer read.Close()
		defer leave()
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, 1<<20)
		shown := 0
		for shown < 3 && lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") && strings.Contains(lines.Text(), "Hidden") {
				shown++
				p.put("team", fmt.Sprint("fails-too-", shown)) // a change to show
			}
		}
		if shown < 3 {
			t.Errorf("the stream ended after %d pages: %v", shown, lines.Err())
		}
		if n := questions.Load(); n == 0 || n > 2+4 { // the kind, its namespace, and each object that may exist
			t.Errorf("%d questions", n)
		}
	})
}
