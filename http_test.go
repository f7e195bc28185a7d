package fairlead_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

func TestPages(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		engine := flow.NewEngine(flow.EngineOptions{})
		rt := fairlead.New(s.Config())
		observeMaps(rt, &diary{}, observe.Name("mine"))
		observe.Source[corev1.Secret](rt, "secrets")
		rt.Flows(engine)
		rt.Handle("/debug/own", http.RedirectHandler("/", http.StatusTeapot))
		r := run(rt)
		synctest.Wait()
		for _, tc := range []struct {
			path string
			code int
			want []string
		}{
			{"/debug/", 200, []string{"/debug/flows\n/debug/observers\n/debug/own\n/debug/pprof/\n/debug/sources\n"}},
			{"/debug/observers", 200, []string{
				"maps", "v1.ConfigMap", "runtime_test.go:", "1 objects, Watching", "<- mine",
				"All, sync", "secrets", "not listed: it has no observer",
			}},
			{
				"/debug/observers?format=json", 200,
				[]string{`"selector":["maps"]`, `"name":"mine"`, `/runtime_test.go:`, `"phase":"Watching"`, `"synced":true`},
			},
			{"/debug/sources", 200, []string{"maps", "1 objects, Watching", "Lists:1"}},
			{"/debug/sources?format=json", 200, []string{`"objects":1`, `"Lists":1`}},
			{"/debug/flows", 200, nil},
			{"/debug/own", http.StatusTeapot, nil},
			{"/debug/none", 404, nil},
			{"/metrics", 200, []string{
				`fairlead_observer_events_total{cluster="",observer="mine",selector="maps"} 2`, `fairlead_observer_lag{`,
				`fairlead_observer_failures_total{`,
				`fairlead_source_objects{cluster="",selector="maps"} 1`, `fairlead_source_running{cluster="",selector="secrets"} 0`,
				`fairlead_source_staleness_seconds{cluster="",namespace="",selector="maps"} 0`,
				`fairlead_source_watching{cluster="",namespace="",selector="maps"} 1`,
				`fairlead_call_`, `go_goroutines`,
			}},
		} {
			code, body := get(rt, tc.path)
			if code != tc.code {
				t.Errorf("%s: %d", tc.path, code)
			}
			for _, want := range tc.want {
				if !strings.Contains(body, want) {
					t.Errorf("%s lacks %q:\n%s", tc.path, want, body)
				}
			}
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestProfiles: clients on other machines get no profiles, unless a guard admits them.
func TestProfiles(t *testing.T) {
	t.Parallel()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	open := fairlead.New(s.Config())
	guarded := fairlead.New(s.Config())
	guarded.GuardDebug(func(pages http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer good" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			pages.ServeHTTP(w, r)
		})
	})
	own := fairlead.New(s.Config())
	own.Handle("GET /debug/pprof/", http.RedirectHandler("/", http.StatusTeapot))
	const here, there = "127.0.0.1:5000", "10.0.0.7:5000"
	for _, tc := range []struct {
		reason            string
		rt                *fairlead.Runtime
		from, host, token string
		path              string
		code              int
		want              string
	}{
		{"the path that the advice of why names", open, here, "127.0.0.1:8080", "", "goroutine?debug=2", 200, "TestProfiles"},
		{"the list", open, here, "localhost:8080", "", "", 200, "/debug/pprof/heap\n"},
		{"from another machine", open, there, "10.0.0.1:8080", "", "goroutine?debug=2", 403, "GuardDebug"},
		{"by a foreign page", open, here, "evil.example", "", "heap", 403, "GuardDebug"},
		{"the guard refuses", guarded, here, "127.0.0.1:8080", "", "heap", 401, ""},
		{"the guard admits", guarded, there, "10.0.0.1:8080", "good", "goroutine?debug=2", 200, "TestProfiles"},
		{"a program that serves its own profiles", own, there, "10.0.0.1:8080", "", "heap", http.StatusTeapot, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/"+tc.path, nil)
		r.RemoteAddr, r.Host = tc.from, tc.host
		if tc.token != "" {
			r.Header.Set("Authorization", "Bearer "+tc.token)
		}
		w := httptest.NewRecorder()
		tc.rt.Handler().ServeHTTP(w, r)
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: %d %q", tc.reason, w.Code, w.Body.String()[:min(200, w.Body.Len())])
		}
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log, lines := io.Pipe()
	rt := fairlead.New(s.Config(), fairlead.WithListen("127.0.0.1:0"),
		fairlead.WithLogger(slog.New(slog.NewTextHandler(lines, nil))))
	address := make(chan string, 1)
	go func() {
		var all strings.Builder
		buffer := make([]byte, 1024)
		for {
			n, err := log.Read(buffer)
			if err != nil {
				return
			}
			all.Write(buffer[:n])
			if _, a, ok := strings.Cut(all.String(), "address="); ok && strings.HasSuffix(a, "\n") {
				select {
				case address <- strings.Fields(a)[0]:
				default:
				}
			}
		}
	}()
	r := run(rt)
	answer, err := http.Get("http://" + <-address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("healthz is %d", answer.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	_ = lines.Close() // closing a pipe cannot fail
}

// TestTakenPort: a port in use is an error of Run, and nothing starts.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	rt := fairlead.New(s.Config(), fairlead.WithListen(taken.Addr().String()))
	var d diary
	observeMaps(rt, &d)
	err = rt.Run(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "cannot run: cannot listen: ") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if n := len(s.Log().Select(apiserver.Match{})); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// TestDefaults: the log goes to the default logger, and writes have the name of the program.
func TestDefaults(t *testing.T) { // not parallel: it changes the default logger
	var out bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		var d diary
		rt := fairlead.New(s.Config())
		observeMaps(rt, &d)
		r := run(rt)
		synctest.Wait()
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "mine"}}
		if err := rt.Client().Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		if owner := s.Log().Select(apiserver.Match{Verb: "create"})[0].Query.Get("fieldManager"); owner != "fairlead.test" {
			t.Errorf("the field owner is %q", owner)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
	if !strings.Contains(out.String(), "all observers are synced") {
		t.Errorf("the log has %q", out.String())
	}
}

// Each watched resource has exactly one line, whatever watches it.
func TestSourcesOfReconcilersAndClients(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		rt := fairlead.New(s.Config())
		observeMaps(rt, &diary{})
		reconcile.New[corev1.ConfigMap](rt, "maps",
			reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
				return reconcile.Done, nil
			}))
		reconcile.New[corev1.Secret](rt, "secrets",
			reconcile.Func[corev1.Secret](func(context.Context, *corev1.Secret) (reconcile.Result, error) {
				return reconcile.Done, nil
			}))
		handle, err := rt.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("ConfigMap"), cache.Labels("app=web"))
		if err != nil {
			t.Fatal(err)
		}
		defer handle.Release()
		s.On(apiserver.Match{Resource: "secrets"}, apiserver.Answer(apiserver.Failure(403)))
		r := run(rt)
		synctest.Wait()
		time.Sleep(time.Minute)
		_, text := get(rt, "/debug/sources")
		var lines []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, " ") {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
		}
		for i, want := range []string{
			`^maps v1.ConfigMap .*/runtime_test.go:\d+ 1 objects, Watching$`,
			`^configmaps app=web .*ConfigMap.v1 of reconcilers or clients 0 objects, Watching$`,
			`^secrets .*Secret.v1 of reconcilers or clients 0 objects, Degraded Forbidden for [1-9]\S*: `,
		} {
			if i >= len(lines) || !regexp.MustCompile(want).MatchString(lines[i]) {
				t.Errorf("line %d is not %s:\n%s", i, want, text)
			}
		}
		if len(lines) != 3 {
			t.Errorf("%d sources:\n%s", len(lines), text)
		}
		if _, body := get(rt, "/debug/sources?format=json"); !strings.Contains(body, `"reason":"Forbidden"`) {
			t.Errorf("the JSON lacks the watches of reconcilers: %s", body)
		}
		if d := rt.Observers().Describe(); len(d.Sources) != 1 {
			t.Errorf("%d sources are described with observers", len(d.Sources))
		}
		handle.Release()
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}
