package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/testbed"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
)

var errDead = errors.New("this process was killed")

// mortal is a transport that fails from the death of its process on; answers on the wire are lost.
type mortal struct {
	next http.RoundTripper
	dead *atomic.Bool
}

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	resp, err := m.next.RoundTrip(r)
	if err == nil && m.dead.Load() {
		resp.Body.Close()
		return nil, errDead
	}
	return resp, err
}

func (m mortal) WrappedRoundTripper() http.RoundTripper { return m.next }

// crash runs a process that dies at a boundary of a step, the first one being 1, and says whether it came so far. What its code
// does after that reaches nobody. The bench has the next process.
func (b *bench) crash(s *script, at int64, then func()) bool {
	b.t.Helper()
	var dead atomic.Bool
	var boundaries atomic.Int64
	cfg := rest.CopyConfig(b.server.Config())
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return mortal{next, &dead} })
	b.host = testbed.NewHost(b.t, cfg, testbed.Mapper(testbed.Resources()))
	e := flow.NewEngine(flow.EngineOptions{Hook: func(flow.Handle, string, bool) {
		if boundaries.Add(1) == at {
			dead.Store(true)
			s.mu.Lock()
			s.dead = true
			s.mu.Unlock()
		}
	}})
	b.declare(s, e)
	b.start()
	if !dead.Load() {
		then()
	}
	_ = b.host.Stop() // a dead process complains to nobody
	_ = e.Close(context.Background())
	s.mu.Lock()
	s.dead = false
	s.mu.Unlock()
	b.host = b.process()
	return dead.Load()
}

func (b *bench) declare(s *script, e *flow.Engine) {
	reconcile.Flow(b.host, "gateways", e, reconcile.Fibers[gateway, gateway]{
		Flow: s.flow(true), Position: func(g *gateway) **flow.Position { return &g.Status.Flow },
	}, reconcile.MaxInterval(-1))
}

// The process dies before and after each step of a flow, and of its undoing. The next one goes on: every step runs, in order,
// and none is repeated but those since the last position that was saved.
func TestAFlowSurvivesACrashAtEveryStep(t *testing.T) {
	for _, test := range []struct {
		phase      string
		boundaries int64 // at least
		deleted    bool
		steps      []string
	}{
		{"up", 6, false, []string{"a", "wait", "c"}},
		{"undo", 10, true, []string{"undo-c", "undo-a"}},
	} {
		for at := int64(1); at <= test.boundaries+2; at++ {
			t.Run(fmt.Sprint(test.phase, " at ", at), func(t *testing.T) {
				bubble(t, func(b *bench) {
					s := &script{}
					b.put("web")
					proceed := func() {
						s.hold.Set()
						b.settle()
						if test.deleted {
							b.erase()
						}
					}
					if died := b.crash(s, at, proceed); !died && at <= test.boundaries {
						t.Errorf("there is no boundary %d", at)
					}
					saved := b.stored()
					s.mu.Lock()
					before := len(s.ran)
					s.mu.Unlock()
					e := flow.NewEngine(flow.EngineOptions{})
					defer e.Close(context.Background())
					b.declare(s, e)
					b.start()
					proceed()
					s.mu.Lock()
					defer s.mu.Unlock()
					if g := b.stored(); test.deleted && g != nil && len(g.Finalizers) > 0 || !test.deleted && (g.Status.Flow == nil || g.Status.Flow.Reason != "completed") {
						t.Fatalf("it has not come to its end: %+v", g.Status.Flow)
					}
					var ran []string
					for _, step := range s.ran {
						if slices.Contains(test.steps, step) {
							ran = append(ran, step)
						}
					}
					if first := slices.Compact(ran); !inOrder(first, test.steps) {
						t.Errorf("steps that ran: %v, want %v in this order", s.ran, test.steps)
					}
					for _, step := range test.steps {
						if n := count(ran, step); n > 2 {
							t.Errorf("%s ran %d times", step, n)
						}
					}
					if test.deleted || saved.Status.Flow == nil || saved.Status.Flow.Ended {
						return
					}
					if at := saved.Status.Flow.Step; len(s.ran) == before || s.ran[before] != at {
						t.Errorf("it was saved at %s, then ran %v", at, s.ran[before:])
					}
				})
			})
		}
	}
}

// erase has the object deleted, as far as its finalizers let that be.
func (b *bench) erase() {
	b.t.Helper()
	if b.stored() == nil {
		return
	}
	b.change(func(u *unstructured.Unstructured) {
		now := metav1.Now()
		u.SetDeletionTimestamp(&now)
	})
	b.settle()
}

// inOrder says whether want is a subsequence of got whose last element is the last of got.
func inOrder(got, want []string) bool {
	if len(got) == 0 || got[len(got)-1] != want[len(want)-1] {
		return false
	}
	for _, step := range got {
		if len(want) > 0 && step == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

func count(list []string, want string) (n int) {
	for _, s := range list {
		if s == want {
			n++
		}
	}
	return n
}
