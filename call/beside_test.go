package call_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/seed"
)

// slowWire is a transport to a server that answers each GET of "key.epoch" after a delay.
type slowWire struct {
	delay func() time.Duration

	mu       sync.Mutex
	newest   map[string]string // by key, the epoch of the latest fiber
	open     map[string]int    // requests in flight, by key
	inFlight int
	most     int
	served   int
	faults   []string
}

func newSlowWire(delay func() time.Duration) *slowWire {
	return &slowWire{delay: delay, newest: map[string]string{}, open: map[string]int{}}
}

func (w *slowWire) client(t *testing.T) *call.Client {
	t.Helper()
	c, err := call.New(call.Options{Config: &rest.Config{Host: "http://server", Transport: w}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// RoundTrip puts a request on the wire, unless its context has ended, as a transport of net/http does.
func (w *slowWire) RoundTrip(r *http.Request) (*http.Response, error) {
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	key, epoch, _ := strings.Cut(name, ".")
	w.mu.Lock()
	if err := context.Cause(r.Context()); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	if newest := w.newest[key]; newest != "" && newest != epoch {
		w.faults = append(w.faults, fmt.Sprintf("%s is sent after %s was started", name, newest))
	}
	if w.open[key]++; w.open[key] > 1 {
		w.faults = append(w.faults, fmt.Sprintf("%s is sent while another request of the key is in flight", name))
	}
	w.inFlight++
	w.most = max(w.most, w.inFlight)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open[key]--
		w.inFlight--
		w.served++
	}()
	select {
	case <-time.After(w.delay()):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	body := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q}}`, name)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)),
	}, nil
}

// CloseIdleConnections makes client-go accept the transport.
func (w *slowWire) CloseIdleConnections() {}

// got returns the most requests that were in flight at a time, the number of all, and the faults.
func (w *slowWire) got() (most, served int, faults []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most, w.served, w.faults
}

// getter is the packet of a fiber that sends requests.
type getter struct {
	client *call.Client
	key    string
	rand   *rand.Rand
}

// getOwn reads the object of the fiber, as client does: the fence stops a preempted fiber.
func getOwn(ctx context.Context, f *flow.Fiber[getter]) error {
	r := call.Request{
		Verb: call.VerbGet, Resource: configMaps, Namespace: "a", Name: fmt.Sprintf("%s.%d", f.Packet.key, f.Epoch()),
	}
	_, err := call.Do(ctx, f.Packet.client, r, call.Policy{Fence: func() error { return flow.Fenced(ctx) }})
	return err
}

// closed runs a test with an engine in a bubble, and closes the engine.
func closed(t *testing.T, opt flow.EngineOptions, test func(t *testing.T, e *flow.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := flow.NewEngine(opt)
		test(t, e)
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Requests of steps run beside the workers: 400 GETs of a second take about a second with 64 workers.
func TestRequestsOfStepsRunBesideWorkers(t *testing.T) {
	t.Parallel()
	const fibers = 400
	for name, flowOf := range map[string]func(c *call.Client) *flow.Flow[getter]{
		"Do": func(*call.Client) *flow.Flow[getter] {
			return flow.New("f", flow.Step("get", func(ctx context.Context, f *flow.Fiber[getter]) flow.Next {
				if err := getOwn(ctx, f); err != nil {
					return f.Fail(err)
				}
				return f.Next()
			}))
		},
		"Step": func(c *call.Client) *flow.Flow[getter] {
			return flow.New("f", call.Step("get", c, call.StepSpec[getter]{
				Request: func(_ context.Context, p *getter) (call.Request, error) {
					return call.Request{Verb: call.VerbGet, Resource: configMaps, Namespace: "a", Name: p.key}, nil
				},
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, tc := range []struct {
				reason string
				opt    flow.EngineOptions
				most   int
				took   time.Duration
			}{
				{"the default", flow.EngineOptions{Workers: 64}, fibers, time.Second},
				{"a bound of 36", flow.EngineOptions{Workers: 64, Requests: 36}, 100, 4 * time.Second},
				{"none beside the workers", flow.EngineOptions{Workers: 64, Requests: -1}, 64, 7 * time.Second},
			} {
				closed(t, tc.opt, func(t *testing.T, e *flow.Engine) {
					wire := newSlowWire(func() time.Duration { return time.Second })
					c := wire.client(t)
					fl, began := flowOf(c), time.Now()
					var all []flow.Handle
					for i := range fibers {
						h, err := fl.Start(t.Context(), e, &getter{client: c, key: fmt.Sprint("k", i)}, flow.StartOptions{})
						if err != nil {
							t.Fatal(err)
						}
						all = append(all, h)
					}
					for _, h := range all {
						if err := h.Wait(t.Context()); err != nil {
							t.Error(err)
						}
					}
					took := time.Since(began)
					if most, served, _ := wire.got(); took != tc.took || most != tc.most || served != fibers {
						t.Errorf("%s: %d requests took %v, %d at a time; want %v and %d", tc.reason, served, took, most, tc.took,
							tc.most)
					}
				})
			}
		})
	}
}

// A preempted step sends no request after that, and none beside a request of its successor. Schedules are random.
func TestPreemptedStepSendsNothing(t *testing.T) {
	t.Parallel()
	const keys, workers, requests = 12, 3, 5
	seed.Play(t, 20, func(t *testing.T, n uint64) {
		t.Helper()
		closed(t, flow.EngineOptions{Workers: workers, Requests: requests}, func(t *testing.T, e *flow.Engine) {
			rnd := seed.Rand(n)
			var mu sync.Mutex
			pause := func(most time.Duration) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(rnd.Int64N(int64(most)))
			}
			wire := newSlowWire(func() time.Duration { return pause(20 * time.Millisecond) })
			c := wire.client(t)
			step := func(ctx context.Context, f *flow.Fiber[getter]) flow.Next {
				for range f.Packet.rand.IntN(3) {
					if err := getOwn(ctx, f); err != nil && f.Packet.rand.IntN(2) == 0 {
						return f.Fail(err) // other fibers continue in spite of the error
					}
				}
				switch f.Packet.rand.IntN(4) {
				case 0:
					return f.Delay(pause(10 * time.Millisecond))
				case 1:
					time.Sleep(pause(10 * time.Millisecond)) // code that ignores the preemption
				case 2:
					return f.Yield()
				}
				return f.Next()
			}
			fl := flow.New("f", flow.Step("a", step), flow.Step("b", step), flow.Step("c", step),
				flow.Step("d", step, flow.Deadline(15*time.Millisecond)))
			for range 300 {
				time.Sleep(pause(4 * time.Millisecond))
				mu.Lock()
				key, own := fmt.Sprint("k", rnd.IntN(keys)), rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
				mu.Unlock()
				wire.mu.Lock()
				wire.newest[key] = "" // during Start both fibers may send
				wire.mu.Unlock()
				h, err := fl.Start(t.Context(), e, &getter{client: c, key: key, rand: own},
					flow.StartOptions{Key: "g/" + key, Reported: true})
				if err != nil {
					t.Fatal(err)
				}
				wire.mu.Lock()
				wire.newest[key] = fmt.Sprint(h.Epoch())
				wire.mu.Unlock()
			}
			if err := e.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			most, served, faults := wire.got()
			if len(faults) > 0 || most > workers+requests || most <= workers || served < 100 {
				t.Errorf("%d requests, %d at a time: %q", served, most, faults)
			}
		})
	})
}
