package fairlead_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
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
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Maps is the selector of most tests.
var Maps = observe.Selector("maps")

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

// running is a runtime during its run.
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

// end stops the runtime and returns the result of Run.
func (r *running) end() error {
	r.stop()
	return <-r.err
}

// diary records lines in order.
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
		slices.Sort(got[:2]) // they start concurrently
		if d := cmp.Diff([]string{"observer begins", "task begins", "task ends", "observer ends"}, got); d != "" {
			t.Error(d)
		}
		synctest.Wait()
		if n := s.Log().Open(apiserver.Match{}); n != 0 {
			t.Errorf("%d open requests", n)
		}
		if err := rt.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "has been run already") {
			t.Errorf("a second run: %v", err)
		}
	})
}

func TestRunReturnsFailures(t *testing.T) {
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
		{"a task that ends its goroutine, as t.Fatal does", func(rt *fairlead.Runtime) {
			rt.Add("gone", func(context.Context) error {
				defer func() { _ = recover() }() // there is nothing to recover
				runtime.Goexit()
				return nil
			})
		}, []string{"gone: it ended its goroutine"}, nil, 0},
		{"a source whose function ends its goroutine", func(rt *fairlead.Runtime) {
			observe.SourceFunc[corev1.ConfigMap](rt, Maps, func(context.Context) ([]cache.Option, error) {
				runtime.Goexit()
				return nil, nil
			})
			observe.On(rt, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error { return nil })
		}, []string{`cannot start source "maps" (`, "ended its goroutine"}, nil, 0},
		{"a task that fails because another one did", func(rt *fairlead.Runtime) {
			rt.Add("second", func(ctx context.Context) error {
				<-ctx.Done()
				return errors.New("could not say goodbye")
			})
			rt.Add("first", func(context.Context) error { return broken })
		}, []string{"first: broken", "second: could not say goodbye"}, broken, 0},
		{"a task that returns Canceled without a cancellation", func(rt *fairlead.Runtime) {
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
			observe.SourceFunc[corev1.ConfigMap](rt, Maps, func(context.Context) ([]cache.Option, error) { return nil, broken })
			observe.On(rt, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error { return nil })
			rt.Add("task", func(context.Context) error { return errors.New("was started all the same") })
		}, []string{"cannot start observers", `cannot start source "maps" (`, "/runtime_test.go:", "broken"}, broken, 0},
		{"mistakes in declarations", func(rt *fairlead.Runtime) {
			observe.Source[corev1.ConfigMap](rt, Maps)
			observe.Source[corev1.ConfigMap](rt, Maps)
			rt.Handle("GET /metrics", http.NotFoundHandler())
			rt.Join("", nil)
		}, []string{
			`cannot serve "GET /metrics"`, "/runtime_test.go:", "cannot join cluster: it has no name",
			"another source is declared",
		}, observe.ErrDuplicateSource, 0},
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
					t.Errorf("Run took %v", took)
				}
				if strings.Contains(tc.reason, "mistake") && len(s.Log().Requests) > 0 {
					t.Errorf("%d requests were sent", len(s.Log().Requests))
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

// A server that does not respond to discovery must not keep the program from stopping.
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
	if took := time.Since(begin); took >= 20*time.Second { // the real clock, on a busy machine
		t.Errorf("Run took %v", took)
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
		if _, body := get(rt, "/metrics"); !strings.Contains(body,
			`fairlead_source_objects{cluster="east",selector="maps"} 1`) {
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
				t.Errorf("%d open requests", n)
			}
		}
	})
}

// The end of the context hides no earlier failure.
func TestFailureBeforeTheEndIsReturned(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tc := range []struct {
		reason  string
		declare func(rt *fairlead.Runtime, other *fairlead.Host, fail, wait func(context.Context) ([]cache.Option, error))
		want    string
	}{
		{
			"a source of the same cluster",
			func(rt *fairlead.Runtime, _ *fairlead.Host, fail, wait func(context.Context) ([]cache.Option, error)) {
				observe.SourceFunc[corev1.ConfigMap](rt, "fails", fail)
				observe.SourceFunc[corev1.ConfigMap](rt, "waits", wait)
				observe.Known[corev1.ConfigMap](rt, "fails")
				observe.Known[corev1.ConfigMap](rt, "waits")
			}, "cannot start observers",
		},
		{
			"a source of another cluster",
			func(rt *fairlead.Runtime, other *fairlead.Host, fail, wait func(context.Context) ([]cache.Option, error)) {
				observe.SourceFunc[corev1.ConfigMap](rt, "waits", wait)
				observe.SourceFunc[corev1.ConfigMap](other, "fails", fail)
				observe.Known[corev1.ConfigMap](rt, "waits")
				observe.Known[corev1.ConfigMap](other, "fails")
			}, `cluster "east"`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *apiserver.Server) {
				rt := fairlead.New(s.Config())
				east := rt.Join("east", s.Config())
				tc.declare(rt, east,
					func(context.Context) ([]cache.Option, error) { return nil, broken },
					func(ctx context.Context) ([]cache.Option, error) {
						<-ctx.Done()
						return nil, context.Cause(ctx)
					})
				r := run(rt)
				synctest.Wait()
				if err := r.end(); !errors.Is(err, broken) || !strings.Contains(err.Error(), tc.want) ||
					errors.Is(err, context.Canceled) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}
