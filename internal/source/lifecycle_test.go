package source_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// TestStopInEveryState: Run returns at once in every state of the scope. The leak check of TestMain covers its
// goroutines.
func TestStopInEveryState(t *testing.T) {
	t.Parallel()
	hole := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	half := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"kind":"ConfigMapList","items":[`+object("a", 1))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	cases := map[string]struct {
		lists, watches []reply
		watchList      bool
		when           func(s *script, r *recorder) bool
	}{
		"no answer yet": {[]reply{hole}, nil, false, func(*script, *recorder) bool { return true }},
		"connecting":    {[]reply{hole}, nil, false, func(s *script, _ *recorder) bool { return len(s.seen()) == 1 }},
		"listing": {[]reply{half}, nil, false, func(_ *script, r *recorder) bool {
			return r.status().Phase == source.Listing
		}},
		"between pages": {[]reply{page(5, "t", object("a", 1)), hole}, nil, false, func(s *script, _ *recorder) bool {
			return len(s.seen()) == 2
		}},
		"initial events": {nil, []reply{watch(event("ADDED", object("a", 1)))}, true, func(_ *script, r *recorder) bool {
			return r.status().Phase == source.Listing
		}},
		"opening a watch": {[]reply{list(5)}, []reply{hole}, false, func(s *script, _ *recorder) bool {
			return len(s.seen()) == 2
		}},
		"watching": {[]reply{list(5)}, []reply{watch()}, false, func(_ *script, r *recorder) bool {
			return r.status().Phase == source.Watching
		}},
		"waiting": {
			[]reply{status(429, "TooManyRequests", "later", `{"retryAfterSeconds":100}`)},
			nil, false,
			func(_ *script, r *recorder) bool { return r.status().Phase == source.Degraded },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			s := serve(t, c.lists, c.watches)
			src, err := source.New(source.Config{
				REST: &rest.Config{Host: s.server.URL}, Resource: configMaps, NoWatchList: !c.watchList,
			}, r.sink)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- src.Run(ctx) }()
			eventually(t, "the state", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return c.when(s, r)
			})
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(testlimit.Wait):
				t.Fatal("does not stop")
			}
			if r.open {
				t.Error("a replacement was left open")
			}
			if st := src.Status()[0]; name != "before anything" && st.Phase != source.Stopped {
				t.Errorf("status %+v", st)
			}
			if err := src.Run(t.Context()); !errors.Is(err, source.ErrRunning) {
				t.Errorf("second Run: %v", err)
			}
		})
	}
}

// perNamespace creates a recorder for each scope.
type perNamespace struct {
	t  *testing.T
	mu sync.Mutex
	of map[string]*recorder
}

func (p *perNamespace) sink(ns string) source.Sink {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := newRecorder(p.t)
	p.of[ns] = r
	return r
}

func (p *perNamespace) get(ns string) *recorder {
	p.t.Helper()
	var r *recorder
	eventually(p.t, "scope "+ns, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		r = p.of[ns]
		return r != nil
	})
	return r
}

// TestNamespacesChangeAtRunTime: a refused scope does not disturb the others, added scopes start, and removed ones
// stop.
func TestNamespacesChangeAtRunTime(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	open := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ns := strings.Split(r.URL.Path, "/")[4]
		if ns == "forbidden" {
			status(403, "Forbidden", "no rights in "+ns)(w, r)
			return
		}
		if r.URL.Query().Get("watch") != "true" {
			list(5, object(ns, 1))(w, r)
			return
		}
		mu.Lock()
		open[ns]++
		mu.Unlock()
		watch()(w, r)
		mu.Lock()
		open[ns]--
		mu.Unlock()
	}))
	t.Cleanup(server.Close)
	sinks := &perNamespace{t: t, of: map[string]*recorder{}}
	src, err := source.New(source.Config{
		REST: &rest.Config{Host: server.URL}, Resource: configMaps, NoWatchList: true,
		Namespaces: []string{"a", "forbidden"},
	}, sinks.sink)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- src.Run(ctx) }()
	watching := func(ns string) {
		t.Helper()
		r := sinks.get(ns)
		r.wait(ns+" watching", func() bool { return r.status().Phase == source.Watching })
	}
	watching("a")
	forbidden := sinks.get("forbidden")
	forbidden.wait("Forbidden", func() bool { return forbidden.status().Reason == source.ReasonForbidden })
	src.SetNamespaces("a", "b")
	watching("b")
	if st := forbidden.statuses[len(forbidden.statuses)-1]; st.Phase != source.Stopped ||
		st.Reason != source.ReasonEnded || st.Err != nil {
		t.Errorf("removed scope has status %+v", st)
	}
	src.SetNamespaces("b")
	eventually(t, "the watch of a to end", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return open["a"] == 0 && open["b"] == 1
	})
	if all := src.Status(); len(all) != 1 || all[0].Namespace != "b" {
		t.Errorf("status %+v", all)
	}
	if n := sinks.get("b").commits; n != 1 {
		t.Errorf("b listed %d times, want once", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	src.SetNamespaces("c") // starts no scope any more
	if sinks.of["c"] != nil {
		t.Error("a scope started after Run")
	}
}

func TestSelectorsChangeAtRunTime(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	s := serve(t, []reply{list(5, object("a", 1), object("b", 2)), list(6, object("b", 2))}, []reply{watch()})
	src := s.run(r, func(c *source.Config) { c.LabelSelector = "x=1" })
	r.wait("Watching", func() bool { return r.status().Phase == source.Watching })
	src.SetSelectors(source.Selectors{Label: "x=2"})
	r.wait("the second list", func() bool { return r.commits == 2 })
	if got := r.snapshot(); len(got) != 1 {
		t.Errorf("objects %v, want b", got)
	}
	want := "LIST resourceVersion=5 resourceVersionMatch=NotOlderThan limit=500 labelSelector=x=2"
	if got := s.seen()[2]; got != want {
		t.Errorf("request %q, want %q", got, want)
	}
}

func TestPanicOfASinkIsReported(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	r.refuse = func(*source.Object) error { panic("boom") }
	s := serve(t, []reply{list(5, object("a", 1))}, []reply{watch()})
	src, err := source.New(source.Config{REST: &rest.Config{Host: s.server.URL}, Resource: configMaps, NoWatchList: true},
		r.sink)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("error %v, want the panic", err)
	}
}

func TestRefusedObjectIsQuarantined(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	broken := errors.New("index function failed")
	r.refuse = func(o *source.Object) error {
		if string(o.Header.Name) == "bad" {
			return broken
		}
		return nil
	}
	s := serve(t, []reply{list(5, object("bad", 1), object("a", 2))},
		[]reply{watch(event("MODIFIED", object("bad", 6)), event("ADDED", object("b", 7)))})
	s.run(r)
	r.wait("b", func() bool { return r.version == "7" })
	if len(r.quarantined) != 2 || !errors.Is(r.quarantined[1].Err, broken) || len(r.objects) != 2 {
		t.Errorf("quarantined %v, objects %v", r.quarantined, r.objects)
	}
}

func TestNewRefusesIncompleteConfigs(t *testing.T) {
	t.Parallel()
	sink := func(string) source.Sink { return newRecorder(t) }
	for name, c := range map[string]source.Config{
		"no resource": {REST: &rest.Config{Host: "x"}},
		"no server":   {Resource: configMaps},
	} {
		if _, err := source.New(c, sink); err == nil || !strings.HasPrefix(err.Error(), "cannot make source") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := source.New(source.Config{REST: &rest.Config{Host: "x"}, Resource: configMaps}, nil); err == nil {
		t.Error("no sink: no error")
	}
}

// TestTLS: HTTP/2, a private CA, and a token that is rotated in its file.
func TestTLS(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, lists: []reply{list(5, object("a", 1))}, watches: []reply{watch(bookmark(9))}}
	var proto string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer new" {
			status(401, "Unauthorized", "token "+r.Header.Get("Authorization"))(w, r)
			return
		}
		proto = r.Proto
		s.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	s.server = server
	r := newRecorder(t)
	s.run(r, func(c *source.Config) {
		c.REST.BearerTokenFile = token
		c.REST.TLSClientConfig = rest.TLSClientConfig{CAData: ca, ServerName: "example.com"}
	})
	r.wait("Unauthorized", func() bool { return r.status().Reason == source.ReasonUnauthorized })
	if err := os.WriteFile(token, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.wait("the bookmark", func() bool { return r.version == "9" })
	if proto != "HTTP/2.0" {
		t.Errorf("protocol %s", proto)
	}
}

func TestUntrustedServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	r := newRecorder(t)
	(&script{t: t, server: server}).run(r)
	r.wait("Disconnected", func() bool { return r.status().Reason == source.ReasonDisconnected })
	var unknown *tls.CertificateVerificationError
	if !errors.As(r.status().Err, &unknown) {
		t.Errorf("error %v", r.status().Err)
	}
}
