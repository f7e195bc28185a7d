package flowtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/flow/flowtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outside is the world outside of the process. It makes each effect once for each idempotency key, and records all
// requests.
type outside struct {
	mu    sync.Mutex
	made  map[string]bool // by idempotency key
	state map[string]int  // effects by name
}

func (o *outside) effect(name, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.made[key] {
		o.made[key] = true
		o.state[name]++
	}
}

func (o *outside) has(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state[name] > 0
}

type domain struct{ *outside }

// reserve makes an effect that only the idempotency key protects from repetition.
func reserve(ctx context.Context, f *flow.Fiber[domain]) flow.Next {
	f.Packet.effect("address", f.IdempotencyKey())
	return f.Next()
}

// create makes an effect that can be observed.
func create(name string) flow.Node[domain] {
	return flow.Step(name, func(ctx context.Context, f *flow.Fiber[domain]) flow.Next {
		f.Packet.effect(name, fmt.Sprint(name, time.Now().UnixNano(), f.Attempt()))
		return f.Delay(time.Second)
	}, flow.Done(func(ctx context.Context, f *flow.Fiber[domain]) (bool, error) { return f.Packet.has(name), nil }))
}

func bringUp() *flow.Flow[domain] {
	server := flow.New("server", create("one"), create("two"))
	return flow.New("bring-up", create("admin"), flow.Step("reserve", reserve, flow.Save()),
		flow.Step("wait", func(ctx context.Context, f *flow.Fiber[domain]) flow.Next {
			return f.Await(flow.Func(func(context.Context) (bool, error) {
				return f.Now().Sub(f.Entered()) >= 3*time.Second, nil
			}, time.Second),
				flow.Timeout(time.Minute))
		}),
		flow.Fork("servers", func(ctx context.Context, f *flow.Fiber[domain]) ([]flow.Child, error) {
			return []flow.Child{server.Child("", f.Packet)}, nil
		}), create("last"))
}

func TestCrashAtEveryBoundaryDoublesNothing(t *testing.T) {
	t.Parallel()
	crashes := 0
	flowtest.Crash(t, bringUp(), flow.StartOptions{}, func(t testing.TB) flowtest.World[domain] {
		crashes++
		o := &outside{made: map[string]bool{}, state: map[string]int{}}
		return flowtest.World[domain]{
			Packet: func() *domain { return &domain{o} },
			Check: func(t testing.TB, err error) {
				if err != nil {
					t.Error(err)
				}
				for _, name := range []string{"admin", "address", "one", "two", "last"} {
					want := []int{1}
					if name == "address" {
						want = []int{1, 2} // a crash after the end starts a new run, which cannot be distinguished from the old one
					}
					if !slices.Contains(want, o.state[name]) {
						t.Errorf("the effect %s was made %d times", name, o.state[name])
					}
				}
			},
		}
	})
	if crashes < 20 {
		t.Errorf("only %d crashes", crashes)
	}
}

func TestCrashFindsAnEffectThatIsDoubled(t *testing.T) {
	t.Parallel()
	doubled := 0
	count := func(name string) flow.Node[domain] {
		return flow.Step(name, func(ctx context.Context, f *flow.Fiber[domain]) flow.Next {
			f.Packet.effect(name, fmt.Sprint(name, time.Now().UnixNano(), len(f.Packet.made))) // no key: made each time
			return f.Delay(time.Second)
		})
	}
	flowtest.Crash(t, flow.New("careless", count("a"), count("b")), flow.StartOptions{},
		func(t testing.TB) flowtest.World[domain] {
			o := &outside{made: map[string]bool{}, state: map[string]int{}}
			return flowtest.World[domain]{Packet: func() *domain { return &domain{o} }, Check: func(t testing.TB, err error) {
				if err != nil && !errors.Is(err, flow.ErrCancelled) {
					t.Error(err)
				}
				if o.state["a"] > 1 || o.state["b"] > 1 {
					doubled++
				}
			}}
		})
	if doubled == 0 {
		t.Error("no crash has doubled the effect of a careless step: the helper finds nothing")
	}
}

func TestExploreFindsAnOrderThatBreaks(t *testing.T) {
	t.Parallel()
	orders := map[string]int{}
	flowtest.Explore(t, 100, func(s *flowtest.Schedule) {
		order := ""
		for _, actor := range []string{"a", "b", "c"} {
			s.Go(actor, func(pass func()) {
				pass()
				order += actor // one at a time
			})
		}
		s.Run(time.Second, func() bool { return true })
		orders[order]++
	})
	if len(orders) != 6 {
		t.Errorf("of 6 orders it has found %v", orders)
	}
}

func TestExploreRepeatsASeed(t *testing.T) {
	t.Parallel()
	run := func() (orders []string) {
		flowtest.Explore(t, 20, func(s *flowtest.Schedule) {
			order := ""
			for _, actor := range []string{"a", "b", "c", "d"} {
				s.Go(actor, func(pass func()) {
					for range 3 {
						pass()
						order += actor
					}
				})
			}
			s.Run(time.Second, func() bool { return true })
			orders = append(orders, order)
		})
		return orders
	}
	if one, two := run(), run(); !slices.Equal(one, two) {
		t.Errorf("%v\n%v", one, two)
	}
}

// failing is a test that records failures instead of failing.
type failing struct {
	testing.TB
	failures int
}

func (f *failing) Errorf(string, ...any) { f.failures++ }
func (f *failing) Helper()               {}

func TestMonitorReportsViolations(t *testing.T) {
	t.Parallel()
	e := flow.NewEngine(flow.EngineOptions{})
	defer e.Close(context.Background())
	cases := []struct {
		reason string
		act    func(m *flowtest.Monitor)
		want   int
	}{
		{"all is well", func(m *flowtest.Monitor) {
			opt := flow.StartOptions{OnEnd: m.OnEnd("a", nil)}
			h, err := flow.New("f", flow.Step("x", flow.Do(func(context.Context, *int) error { return nil }))).Start(
				context.Background(), e, new(int), opt,
			)
			m.Started("a", h, err)
			h.Wait(context.Background())
		}, 0},
		{"a callback that is missing", func(m *flowtest.Monitor) {
			h, err := flow.New("f", flow.Step("x", flow.Do(func(context.Context, *int) error { return nil }))).Start(
				context.Background(), e, new(int), flow.StartOptions{},
			)
			m.Started("a", h, err)
			h.Wait(context.Background())
		}, 1},
		{"a repeated callback", func(m *flowtest.Monitor) {
			end := m.OnEnd("a", nil)
			end(flow.Result{Status: flow.Completed})
			end(flow.Result{Status: flow.Completed})
		}, 1},
		{"a failure without an error", func(m *flowtest.Monitor) { m.OnEnd("a", nil)(flow.Result{Status: flow.Failed}) }, 1},
		{"the end of a refused fiber", func(m *flowtest.Monitor) {
			m.OnEnd("a", nil)(flow.Result{Status: flow.Completed})
			m.Started("a", flow.Handle{}, flow.ErrBusy)
		}, 1},
	}
	for _, c := range cases {
		f := &failing{TB: t}
		m := &flowtest.Monitor{TB: f}
		c.act(m)
		m.Check()
		if f.failures != c.want {
			t.Errorf("%s: %d failures, want %d", c.reason, f.failures, c.want)
		}
	}
}

// A world may request several crashes in a row, and downtime between them. It may have the observations of steps
// compared.
func TestCrashOptionsOfTheWorld(t *testing.T) {
	t.Parallel()
	type packet struct{ trace *flowtest.Trace }
	fl := flow.New("f",
		flow.Step("a", func(_ context.Context, f *flow.Fiber[packet]) flow.Next {
			f.Packet.trace.Note(f.Attempt())
			if f.Attempt() < 2 {
				return f.Retry(time.Second)
			}
			return f.Delay(time.Minute)
		}),
		flow.Step("b", flow.Do(func(context.Context, *packet) error { return nil }), flow.Deadline(time.Second)))
	for _, c := range []struct {
		crashes int
		down    time.Duration
		trace   *flowtest.Trace
	}{
		{0, 0, nil},
		{1, time.Hour, nil},
		{2, 0, &flowtest.Trace{Times: true}},
		{3, time.Second, &flowtest.Trace{}},
	} {
		plays, crashes := 0, 0
		flowtest.Crash(t, fl, flow.StartOptions{}, func(testing.TB) flowtest.World[packet] {
			starts, began, trace := 0, time.Now(), c.trace
			plays++
			if trace == nil {
				trace = &flowtest.Trace{}
			}
			return flowtest.World[packet]{
				Crashes: c.crashes, Down: c.down, Trace: c.trace,
				Packet: func() *packet {
					if starts++; starts > 1 && time.Since(began) < time.Duration(starts-1)*c.down {
						t.Errorf("started again after %v, %v down", time.Since(began), c.down)
					}
					return &packet{trace}
				},
				Check: func(t testing.TB, err error) {
					if err != nil {
						t.Error(err)
					}
					crashes = max(crashes, starts-1)
				},
			}
		})
		if want := max(1, c.crashes); crashes != want || plays < 10 {
			t.Errorf("%d crashes in a row, want %d, in %d plays", crashes, want, plays)
		}
	}
}
