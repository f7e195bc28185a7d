package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// A new leader whose cache lacks the writes of the former one resumes at the former leader's position. On deletion it
// undoes the former leader's steps.
func TestNewLeaderBehindItsCacheResumes(t *testing.T) {
	bubble(t, func(b *bench) {
		var s script
		// without the finalizer, its own write of one would return the missing state
		b.put("web", func(g *gateway) { g.Finalizers = []string{finalizer} })
		turn := &turns{begin: make(chan struct{})}
		_, e := b.flows(&s, true, reconcile.Finalizer(finalizer), reconcile.Leader(turn))
		defer e.Close(context.Background())
		b.start()
		standby := b.host
		defer func() { b.host = standby }()
		b.host = b.process()
		first := &turns{begin: make(chan struct{})}
		_, former := b.flows(&s, true, reconcile.Finalizer(finalizer), reconcile.Leader(first))
		b.start()
		behind := b.server.HoldEvents(apiserver.Match{Verb: "watch"}) // of both processes
		defer behind.Release()
		close(first.begin)
		b.settle()
		s.mu.Lock()
		s.fail = func(step string) error {
			if step == "c" { // killed: from here on no request arrives
				b.server.On(apiserver.Match{Verb: "patch"}, apiserver.Drop())
			}
			return nil
		}
		s.mu.Unlock()
		s.hold.Set()
		b.settle()
		s.want(t, "the former leader", "a", "wait", "c")
		if err := b.host.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := former.Close(b.ctx); err != nil {
			t.Fatal(err)
		}
		b.server.ClearFaults()
		s.mu.Lock()
		s.ran, s.fail = nil, nil
		s.mu.Unlock()
		s.hold.Clear()

		b.host = standby
		close(turn.begin)
		b.settle()
		s.want(t, "the new one", "c")
		behind.Release()
		b.settle()
		if err := b.client().Delete(b.ctx, testbed.New("a", "web")); err != nil {
			t.Fatal(err)
		}
		b.settle()
		s.want(t, "the deletion", "c", "undo-c", "undo-a")
	})
}

// The times in the position of an ended fiber are not rounded down.
func TestTimesOfAnEndAreExact(t *testing.T) {
	bubble(t, func(b *bench) {
		testbed.Settle(300 * time.Millisecond)
		var s script
		s.hold.Set()
		_, e := b.flows(&s, false)
		defer e.Close(context.Background())
		b.put("web")
		began := time.Now()
		b.start()
		p := b.stored().Status.Flow
		if p == nil || !p.Ended || p.Begun.Before(began) || p.Started.Before(p.Begun) {
			t.Errorf("begun at %v, the end of its fiber is %+v", began, p)
		}
	})
}
