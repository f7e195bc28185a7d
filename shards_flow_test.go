package fairlead_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// steps counts the completed steps of flows, and records how their fibers ended.
type steps struct {
	mu    sync.Mutex
	done  map[string]int
	ended map[flow.Status]int
}

func (s *steps) did(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[what]++
}

// brings returns a flow that takes a step, waits, takes a slow step, and waits again. Only a deletion undoes it.
func (s *steps) brings() *flow.Flow[testbed.Gateway] {
	step := func(name string, takes time.Duration,
		then func(*flow.Fiber[testbed.Gateway]) flow.Next,
	) flow.Node[testbed.Gateway] {
		return flow.Step(name, func(_ context.Context, f *flow.Fiber[testbed.Gateway]) flow.Next {
			time.Sleep(takes)
			s.did(client.KeyOf(f.Packet).String() + " " + name)
			return then(f)
		}, flow.Undo(flow.Do(func(_ context.Context, gw *testbed.Gateway) error {
			s.did(client.KeyOf(gw).String() + " undo " + name)
			return nil
		})))
	}
	delay := func(d time.Duration) func(*flow.Fiber[testbed.Gateway]) flow.Next {
		return func(f *flow.Fiber[testbed.Gateway]) flow.Next { return f.Delay(d) }
	}
	return flow.New("bring", step("one", 0, delay(7*time.Second)), step("two", time.Second, delay(time.Second)),
		step("three", 300*time.Millisecond, delay(5*time.Second)), step("four", 0, delay(time.Second)))
}

// TestFlowsMove adds and removes replicas while flows run. Each flow resumes at its position: no step runs twice, and
// none is undone.
func TestFlowsMove(t *testing.T) {
	t.Parallel()
	seed.Play(t, 4, func(t *testing.T, sd uint64) {
		synctest.Test(t, func(t *testing.T) {
			server, err := apiserver.New(apiserver.Options{Pipe: true, Resources: testbed.Resources()})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			s, r := &steps{done: map[string]int{}, ended: map[flow.Status]int{}}, seed.Rand(sd, "schedule")
			by := shard.By(r.IntN(2))
			var keys []client.Key
			for i := range 16 {
				keys = append(keys, client.Key{Namespace: fmt.Sprintf("%c-team", 'a'+i%8), Name: fmt.Sprint("g", i)})
				if _, err := server.Put(testbed.New(keys[i].Namespace, keys[i].Name)); err != nil {
					t.Fatal(err)
				}
			}
			var live, gone []*running
			for range 8 {
				if len(live) < 2 || r.IntN(2) == 0 {
					live = append(live, s.replica(server, by, fmt.Sprint("p", len(live)+len(gone))))
				} else {
					i := r.IntN(len(live))
					gone = append(gone, live[i])
					live[i].stop()
					live = append(live[:i:i], live[i+1:]...)
				}
				time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, k := range keys {
				for _, step := range []string{"one", "two", "three", "four"} {
					if n := s.done[k.String()+" "+step]; n != 1 {
						t.Errorf("%s: step %s was run %d times", k, step, n)
					}
				}
			}
			if len(s.done) != 4*len(keys) {
				t.Errorf("unexpected effects: %v", s.done)
			}
			if s.ended[flow.Completed] != len(keys) || s.ended[flow.Failed]+s.ended[flow.Cancelled] > 0 {
				t.Errorf("fibers have ended: %v", s.ended)
			}
			for _, p := range append(live, gone...) {
				if err := p.end(); err != nil {
					t.Error(err)
				}
			}
		})
	})
}

func (s *steps) replica(server *apiserver.Server, by shard.By, name string) *running {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.AddSpecific(testbed.GroupVersion.WithKind("Gateway"), testbed.Gateways,
		testbed.GroupVersion.WithResource("gateway"), meta.RESTScopeNamespace)
	rt := fairlead.New(server.Config(), fairlead.WithScheme(testbed.Scheme()), fairlead.WithMapper(mapper),
		fairlead.WithShards("default", "replicas", fairlead.ShardBy(by), func(o *group.Options) {
			o.Member, o.Layout.Slots = name, 8
		}))
	e := flow.NewEngine(flow.EngineOptions{})
	rt.Flows(e)
	reconcile.Flow(rt, "gateways", e, reconcile.Fibers[testbed.Gateway, testbed.Gateway]{
		Flow:     s.brings(),
		Position: func(g *testbed.Gateway) **flow.Position { return &g.Status.Flow },
		OnEnd: func(_ *testbed.Gateway, r flow.Result) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended[r.Status]++
		},
	})
	return run(rt)
}

// Replicas that share objects accept only flows that another replica can resume.
func TestShardedFlowsAreDurable(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config(), fairlead.WithShards("default", "replicas"))
		e := flow.NewEngine(flow.EngineOptions{})
		rt.Flows(e)
		fl := flow.New("f", flow.Step("a", func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.End() }))
		if _, err := fl.Start(t.Context(), e, new(int), flow.StartOptions{Key: "a/b"}); !errors.Is(err, flow.ErrNotDurable) {
			t.Errorf("a fiber without positions: %v", err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Contradictory options are reported before anything runs.
func TestMistakesOfShards(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		for name, c := range map[string]struct {
			want string
			rt   func() *fairlead.Runtime
		}{
			"an election besides": {"elect no leader", func() *fairlead.Runtime {
				return fairlead.New(s.Config(), fairlead.WithShards("a", "b"), fairlead.WithLeaderElection("a", "c"))
			}},
			"no name": {"a namespace, a name", func() *fairlead.Runtime {
				return fairlead.New(s.Config(), fairlead.WithShards("a", ""))
			}},
			"an odd number of slots": {"power of two", func() *fairlead.Runtime {
				return fairlead.New(s.Config(), fairlead.WithShards("a", "b", func(o *group.Options) { o.Layout.Slots = 3 }))
			}},
			"a leader of a controller": {"have no Leader", func() *fairlead.Runtime {
				rt := fairlead.New(s.Config(), fairlead.WithShards("a", "b"))
				reconcile.New[testbed.Gateway](rt, "g", reconcile.Func[testbed.Gateway](nil), reconcile.Leader(&leadership{}))
				return rt
			}},
		} {
			if err := c.rt().Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestOtherProgramInShards: a replica states its main package, its namespaces and its kinds. The group refuses another
// program.
func TestOtherProgramInShards(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		start := func(change ...func(*group.Options)) *running {
			rt := fairlead.New(s.Config(), fairlead.WithShards("default", "replicas", change...),
				fairlead.WithSource(cache.Namespaces("b", "a")))
			observe.Source[corev1.ConfigMap](rt, Maps)
			observe.On(rt, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error { return nil })
			return run(rt)
		}
		first := start()
		time.Sleep(5 * time.Second)
		report, err := group.Read(t.Context(), s.Config(), "default", "replicas")
		if err != nil {
			t.Fatal(err)
		}
		m := report.Members[0]
		if m.Program == "" || fmt.Sprint(m.Namespaces) != "[a b]" || !slices.Contains(m.Kinds, "ConfigMap") ||
			slices.Contains(m.Kinds, "Lease.coordination.k8s.io") {
			t.Errorf("The member is %+v.", m)
		}
		other := fairlead.New(s.Config(),
			fairlead.WithShards("default", "replicas", func(o *group.Options) { o.Program = "other" }))
		err = other.Run(t.Context())
		if !errors.Is(err, group.ErrProgram) || !strings.Contains(err.Error(), `"other"`) ||
			!strings.Contains(err.Error(), m.Program) {
			t.Errorf("Another program ends with %v.", err)
		}
		if err := first.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestStandbyBesideALeader: a member that waits for the end of a leader of the program is ready. Otherwise a rollout
// would wait for both. It takes over after the leader. A member without rights reports that.
func TestStandbyBesideALeader(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		before := fairlead.New(s.Config(), fairlead.WithLeaderElection("default", "leader"))
		observe.Source[corev1.ConfigMap](before, Maps)
		leader := run(before)
		time.Sleep(5 * time.Second)
		seen := make(chan string, 10)
		rt := fairlead.New(s.Config(),
			fairlead.WithShards("default", "replicas", func(o *group.Options) { o.Leader = "leader" }))
		observe.Source[corev1.ConfigMap](rt, Maps, cache.Namespaces("a"))
		observe.On(rt, Maps, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Type == observe.Added {
				seen <- e.Key.String()
			}
			return nil
		})
		member := run(rt)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if code, body := get(member.Runtime, "/readyz"); code != 200 || !strings.Contains(body, "standby") || len(seen) > 0 {
			t.Errorf("beside a leader: %d %s, saw %d", code, body, len(seen))
		}
		if err := leader.end(); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if code, body := get(member.Runtime, "/readyz"); code != 200 || strings.Contains(body, "standby") || len(seen) != 1 {
			t.Errorf("after the leader: %d %s, saw %d", code, body, len(seen))
		}
		if code, body := get(member.Runtime, "/debug/shards"); code != 200 || !strings.Contains(body, `"held":"0-63"`) {
			t.Errorf("/debug/shards: %d %s", code, body)
		}
		if err := member.end(); err != nil {
			t.Error(err)
		}
	})
}
