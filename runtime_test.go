package fairlead_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Maps is the selector of most tests.
var Maps = observe.Selector("maps")

var leases = apiserver.Match{Group: "coordination.k8s.io", Resource: "leases"}

// bubble runs a test on the fake clock, with a server.
func bubble(t *testing.T, test func(t *testing.T, s *apiserver.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s)
	})
}

// running is a runtime that runs.
type running struct {
	*fairlead.Runtime
	stop context.CancelFunc
	err  chan error
}

func run(rt *fairlead.Runtime) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{rt, cancel, make(chan error, 1)}
	go func() { r.err <- rt.Run(ctx) }()
	return r
}

// end stops it and returns what Run returned.
func (r *running) end() error {
	r.stop()
	return <-r.err
}

// diary is what happened, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

func put(t *testing.T, s *apiserver.Server, name string) {
	t.Helper()
	if _, err := s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}); err != nil {
		t.Fatal(err)
	}
}

func get(rt *fairlead.Runtime, path string) (int, string) {
	w := httptest.NewRecorder()
	rt.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func observeMaps(rt observe.Host, d *diary, opts ...observe.Option) {
	observe.Source[corev1.ConfigMap](rt, Maps)
	observe.On(rt, Maps, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
		d.add(strings.TrimSpace(fmt.Sprint(e.Type, " ", e.Key.Name)))
		return nil
	}, opts...)
}

func TestRunStopsInReverseOrder(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		rt := fairlead.New(s.Config())
		observe.Source[corev1.ConfigMap](rt, Maps)
		observe.On(rt, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Type == observe.Added {
				d.add("observer begins")
				time.Sleep(time.Second)
				if err := ctx.Err(); err != nil {
					t.Errorf("the context of an observer that runs ended before the drain: %v", err)
				}
				// The client still works.
				if _, err := client.Get[corev1.ConfigMap](ctx, rt.Client(), e.Key); err != nil {
					t.Error(err)
				}
				d.add("observer ends")
			}
			return nil
		})
		rt.Add("task", func(ctx context.Context) error {
			d.add("task begins")
			<-ctx.Done()
			d.add("task ends")
			return ctx.Err()
		})
		r := run(rt)
		synctest.Wait()
		if err := r.end(); err != nil {
			t.Errorf("Run: %v", err)
		}
		got := d.all()
		slices.Sort(got[:2]) // they start together
		if d := cmp.Diff([]string{"observer begins", "task begins", "task ends", "observer ends"}, got); d != "" {
			t.Error(d)
		}
		synctest.Wait()
		if n := s.Log().Open(apiserver.Match{}); n != 0 {
			t.Errorf("%d requests are open", n)
		}
		if err := rt.Run(t.Context()); !errors.Is(err, fairlead.ErrRan) {
			t.Errorf("a second run: %v", err)
		}
	})
}

func TestRunReturnsWhatFailed(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tc := range []struct {
		reason  string
		declare func(rt *fairlead.Runtime)
		want    []string // in this order
		is      error
		took    time.Duration
	}{
		{"a task", func(rt *fairlead.Runtime) {
			rt.Add("fails", func(context.Context) error { return broken })
		}, []string{"fails: broken"}, broken, 0},
		{"a task that panics", func(rt *fairlead.Runtime) {
			rt.Add("panics", func(context.Context) error { panic("oh no") })
		}, []string{"panics panicked: oh no", "runtime_test.go"}, nil, 0},
		{"a task that fails because another one did", func(rt *fairlead.Runtime) {
			rt.Add("second", func(ctx context.Context) error {
				<-ctx.Done()
				return errors.New("could not say goodbye")
			})
			rt.Add("first", func(context.Context) error { return broken })
		}, []string{"first: broken", "second: could not say goodbye"}, broken, 0},
		{"a task that says cancelled although it was not", func(rt *fairlead.Runtime) {
			rt.Add("confused", func(context.Context) error { return context.Canceled })
		}, []string{"confused: context canceled"}, context.Canceled, 0},
		{"a task that does not stop", func(rt *fairlead.Runtime) {
			rt.Add("stubborn", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute)
				return nil
			})
			rt.Add("fails", func(context.Context) error { return broken })
		}, []string{"fails: broken", "still running after 20s: stubborn"}, broken, 20 * time.Second},
		{"a source that cannot be started", func(rt *fairlead.Runtime) {
			observe.SourceFunc[corev1.ConfigMap](rt, Maps, func(context.Context) ([]source.Option, error) { return nil, broken })
			observe.On(rt, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error { return nil })
			rt.Add("task", func(context.Context) error { return errors.New("was started all the same") })
		}, []string{"cannot start observers", `cannot start source "maps" (`, "/runtime_test.go:", "broken"}, broken, 0},
		{"mistakes in declarations", func(rt *fairlead.Runtime) {
			observe.Source[corev1.ConfigMap](rt, Maps)
			observe.Source[corev1.ConfigMap](rt, Maps)
			rt.Handle("GET /metrics", http.NotFoundHandler())
			rt.Join("", nil)
		}, []string{`cannot serve "GET /metrics"`, "it has no name", "another source is declared"}, observe.ErrDuplicateSource, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *apiserver.Server) {
				rt := fairlead.New(s.Config())
				tc.declare(rt)
				begin := time.Now()
				err := rt.Run(t.Context())
				if err == nil {
					t.Fatal("no error")
				}
				text := err.Error()
				for _, want := range tc.want {
					i := strings.Index(text, want)
					if i < 0 {
						t.Fatalf("%q is missing, or not in order: %v", want, err)
					}
					text = text[i:]
				}
				if tc.is != nil && !errors.Is(err, tc.is) {
					t.Errorf("%v is not %v", err, tc.is)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("it took %v", took)
				}
				if strings.Contains(tc.reason, "mistake") && len(s.Log().Requests) > 0 {
					t.Errorf("%d requests were made", len(s.Log().Requests))
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestNewWithoutConfiguration(t *testing.T) {
	t.Parallel()
	rt := fairlead.New(nil, fairlead.WithLeaderElection("a", "b"))
	observe.Source[corev1.ConfigMap](rt, Maps)
	if err := rt.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no rest.Config") {
		t.Errorf("Run: %v", err)
	}
}

// A server that does not answer the discovery must not keep the program from ending.
func TestStopDuringDiscovery(t *testing.T) {
	t.Parallel()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.On(apiserver.Match{}, apiserver.BlackHole())
	rt := fairlead.New(s.Config())
	observeMaps(rt, &diary{})
	r := run(rt)
	if err := s.WaitFor(t.Context(), func(l apiserver.Log) bool { return len(l.Requests) > 0 }); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := r.end(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAddWhileRunning(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		var d diary
		rt := fairlead.New(s.Config())
		r := run(rt)
		synctest.Wait()
		rt.Add("late", func(ctx context.Context) error {
			d.add("begins")
			<-ctx.Done()
			d.add("ends")
			return nil
		})
		synctest.Wait()
		if err := r.end(); err != nil {
			t.Error(err)
		}
		rt.Add("too late", func(context.Context) error {
			d.add("too late")
			return nil
		})
		synctest.Wait()
		if d := cmp.Diff([]string{"begins", "ends"}, d.all()); d != "" {
			t.Error(d)
		}
	})
}

func TestSignals(t *testing.T) {
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rt := fairlead.New(s.Config(), fairlead.WithSignals(syscall.SIGUSR1))
	rt.Add("sends", func(ctx context.Context) error {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR1); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if err := rt.Run(t.Context()); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		gate := apiserver.NewGate()
		s.On(apiserver.Match{Resource: "configmaps"}, apiserver.HoldRequest(gate))
		rt := fairlead.New(s.Config(), fairlead.WithStaleness(10*time.Minute))
		observeMaps(rt, &diary{}, observe.Name("waiting"))
		check := func(when string, healthy, ready int, says string) {
			t.Helper()
			synctest.Wait()
			if code, body := get(rt, "/healthz"); code != healthy {
				t.Errorf("%s: healthz is %d, want %d: %s", when, code, healthy, body)
			}
			if code, body := get(rt, "/readyz"); code != ready || !strings.Contains(body, says) {
				t.Errorf("%s: readyz is %d, want %d and %q: %s", when, code, ready, says, body)
			}
		}
		check("before", 200, 503, "not started")
		r := run(rt)
		check("starting", 200, 503, "maps (waiting, ")
		gate.Open()
		time.Sleep(time.Minute)
		check("synced", 200, 200, "ready")
		s.Down()
		time.Sleep(9 * time.Minute)
		check("a short outage", 200, 200, "ready")
		time.Sleep(2 * time.Minute)
		check("a long outage", 503, 503, "maps : state is 1")
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		check("recovered", 200, 200, "ready")
		if err := r.end(); err != nil {
			t.Error(err)
		}
		check("stopped", 200, 503, "stopping")
	})
}

// An observer that its policy stops before it is synced keeps the runtime from being ready, and from nothing else.
func TestStoppedObserverIsNotReady(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		rt := fairlead.New(s.Config())
		observeMaps(rt, &d)
		observe.On(rt, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error { return errors.New("broken") },
			observe.OnFailure(observe.Stop, 0))
		r := run(rt)
		synctest.Wait()
		if code, body := get(rt, "/readyz"); code != 503 || !strings.Contains(body, "it was stopped: broken") {
			t.Errorf("readyz is %d: %s", code, body)
		}
		put(t, s, "y")
		synctest.Wait()
		if err := r.end(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if d := cmp.Diff([]string{"Added x", "Synchronized", "Added y"}, d.all()); d != "" {
			t.Error(d)
		}
	})
}

// A watch that goes well is never stale, however long it lasts and however little happens.
func TestQuietIsNotStale(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		observeMaps(rt, &diary{})
		r := run(rt)
		for range 3 * 60 {
			time.Sleep(time.Minute)
			if code, body := get(rt, "/readyz"); code != 200 {
				t.Fatalf("readyz is %d: %s", code, body)
			}
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestNeverReachedIsStale(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		s.On(apiserver.Match{Resource: "configmaps"}, apiserver.BlackHole())
		rt := fairlead.New(s.Config())
		observeMaps(rt, &diary{})
		r := run(rt)
		time.Sleep(6 * time.Minute)
		if code, body := get(rt, "/healthz"); code != 503 {
			t.Errorf("healthz is %d: %s", code, body)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

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
			{"/debug/", 200, []string{"/debug/flows\n/debug/observers\n/debug/own\n/debug/sources\n"}},
			{"/debug/observers", 200, []string{"maps", "v1.ConfigMap", "runtime_test.go:", "1 objects, Watching", "<- mine", "All, sync", "secrets", "not listed: nobody observes it"}},
			{"/debug/observers?format=json", 200, []string{`"selector":["maps"]`, `"name":"mine"`, `/runtime_test.go:`, `"phase":"Watching"`, `"synced":true`}},
			{"/debug/sources", 200, []string{"maps", "1 objects, Watching", "Lists:1"}},
			{"/debug/sources?format=json", 200, []string{`"objects":1`, `"Lists":1`}},
			{"/debug/flows", 200, nil},
			{"/debug/own", http.StatusTeapot, nil},
			{"/debug/none", 404, nil},
			{"/metrics", 200, []string{
				`fairlead_observer_events_total{cluster="",observer="mine",selector="maps"} 2`, `fairlead_observer_lag{`, `fairlead_observer_failures_total{`,
				`fairlead_source_objects{cluster="",selector="maps"} 1`, `fairlead_source_running{cluster="",selector="secrets"} 0`,
				`fairlead_source_staleness_seconds{cluster="",namespace="",selector="maps"} 0`, `fairlead_source_watching{cluster="",namespace="",selector="maps"} 1`,
				`fairlead_call_`, `go_goroutines`,
			}},
		} {
			code, body := get(rt, tc.path)
			if code != tc.code {
				t.Errorf("%s: %d", tc.path, code)
			}
			for _, want := range tc.want {
				if !strings.Contains(body, want) {
					t.Errorf("%s does not say %q:\n%s", tc.path, want, body)
				}
			}
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestListen(t *testing.T) {
	t.Parallel()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log, lines := io.Pipe()
	rt := fairlead.New(s.Config(), fairlead.WithListen("127.0.0.1:0"), fairlead.WithLogger(slog.New(slog.NewTextHandler(lines, nil))))
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
	_ = lines.Close() // a pipe cannot fail

	if err := fairlead.New(s.Config(), fairlead.WithListen("256.0.0.1:0")).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot listen") {
		t.Errorf("Run: %v", err)
	}
}

func TestLeaderElection(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		process := func(name string) *running {
			rt := fairlead.New(s.Config(), fairlead.WithLeaderElection("default", "operator"))
			observe.Source[corev1.ConfigMap](rt, Maps)
			observe.On(rt, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
				if e.Type == observe.Added {
					d.add(name)
				}
				return nil
			})
			return run(rt)
		}
		one := process("one")
		time.Sleep(time.Second)
		two := process("two")
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := cmp.Diff([]string{"one"}, d.all()); d != "" {
			t.Errorf("while the first one leads: %s", d)
		}
		if code, body := get(two.Runtime, "/readyz"); code != 200 || !strings.Contains(body, "standby") {
			t.Errorf("readyz of the second: %d %s", code, body)
		}
		if err := one.end(); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if d := cmp.Diff([]string{"one", "two"}, d.all()); d != "" {
			t.Errorf("after the first one has stopped: %s", d)
		}
		three := process("three")
		begin := time.Now()
		s.On(leases, apiserver.Answer(apiserver.Failure(500)))
		if err := <-two.err; !errors.Is(err, fairlead.ErrNotLeading) {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("it ended %v after the last renewal", took)
		}
		if err := three.end(); err != nil {
			t.Errorf("to end while waiting for leadership is no error: %v", err)
		}
	})
}

// leadership is one that a test takes away.
type leadership struct {
	term  context.Context
	fence func() error
}

func (l *leadership) Lead(context.Context) (context.Context, error) { return l.term, nil }
func (l *leadership) Fence() error                                  { return l.fence() }

func TestNoRequestAfterLeadershipWasLost(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		term, lose := context.WithCancel(context.Background())
		var writes []error
		rt := fairlead.New(s.Config(), fairlead.WithLeadership(&leadership{term, term.Err}))
		observe.Source[corev1.ConfigMap](rt, Maps, source.Namespaces("a"))
		observe.On(rt, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Type == observe.Added {
				write := func(name string) {
					c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: name}}
					writes = append(writes, rt.Client().Create(ctx, c))
				}
				write("before")
				lose()
				write("after")
			}
			return nil
		})
		r := run(rt)
		if err := <-r.err; !errors.Is(err, fairlead.ErrNotLeading) {
			t.Errorf("Run: %v", err)
		}
		if len(writes) != 2 || writes[0] != nil || !errors.Is(writes[1], client.ErrFenced) {
			t.Errorf("writes: %v", writes)
		}
		if n := s.Log().Count(apiserver.Match{Verb: "create"}); n != 1 {
			t.Errorf("%d writes were sent", n)
		}
		r.stop()
	})
}

func TestSeveralClusters(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		other, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		put(t, s, "here")
		put(t, other, "there")
		var first, second diary
		rt := fairlead.New(s.Config())
		east := rt.Join("east", other.Config())
		observeMaps(rt, &first)
		observeMaps(east, &second)
		r := run(rt)
		if err := rt.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"Added here", "Synchronized"}, first.all()); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"Added there", "Synchronized"}, second.all()); d != "" {
			t.Error(d)
		}
		if _, body := get(rt, "/debug/observers"); !strings.Contains(body, "\neast: maps") {
			t.Errorf("observers:\n%s", body)
		}
		if _, body := get(rt, "/metrics"); !strings.Contains(body, `fairlead_source_objects{cluster="east",selector="maps"} 1`) {
			t.Errorf("metrics:\n%s", body)
		}
		east.Add("fails", func(context.Context) error { return errors.New("broken") })
		if err := <-r.err; err == nil || !strings.Contains(err.Error(), "east/fails: broken") {
			t.Errorf("Run: %v", err)
		}
		r.stop()
		synctest.Wait()
		for _, s := range []*apiserver.Server{s, other} {
			if n := s.Log().Open(apiserver.Match{}); n != 0 {
				t.Errorf("%d requests are open", n)
			}
		}
	})
}
