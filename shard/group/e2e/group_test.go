package e2e_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// replica is a member that uses a real API server.
type replica struct {
	g     *group.Group
	stop  context.CancelFunc
	ended chan error
	dead  atomic.Bool // nothing of it arrives any more
}

func (r *replica) Gain(context.Context, shard.Set) error            { return nil }
func (r *replica) Lose(context.Context, shard.Set, func(shard.Set)) {}

func (r *replica) holds(slot int) bool { return !r.dead.Load() && r.g.Fence(slot) == nil }

func replicas(t *testing.T, o group.Options, names ...string) (out []*replica) {
	t.Helper()
	for _, name := range names {
		r := &replica{ended: make(chan error, 1)}
		cfg := disturb.Config(env.Config(t), func(q *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.dead.Load() {
				return nil, disturb.ErrLost
			}
			return next.RoundTrip(q)
		})
		o.Member = name
		g, err := group.New(cfg, o)
		if err != nil {
			t.Fatal(err)
		}
		g.Add(r)
		r.g = g
		ctx, stop := context.WithCancel(t.Context())
		r.stop = stop
		go func() { r.ended <- g.Run(ctx) }()
		t.Cleanup(func() {
			r.dead.Store(false)
			stop()
			if err := <-r.ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		out = append(out, r)
	}
	return out
}

// patience bounds each wait. A machine that is busy with other tests may take minutes.
const patience = testlimit.Wait

// until waits until some replicas hold what they should, and fails if two hold one slot. How long that takes at most is
// for the tests with a clock of their own.
func until(t *testing.T, all []*replica, done func(held []int) bool) {
	t.Helper()
	begun := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		held := make([]int, len(all))
		for slot := range all[0].g.Layout().Len() {
			var before *replica // it held the slot a moment ago
			for i, r := range all {
				if !r.holds(slot) {
					continue
				}
				held[i]++
				if before != nil && before.holds(slot) {
					t.Fatalf("slot %d is held by two", slot)
				}
				before = r
			}
		}
		if done(held) {
			t.Logf("%v after %v", held, time.Since(begun).Round(time.Millisecond))
			return
		}
		if time.Since(begun) > patience {
			t.Fatalf("after %v they hold %v", patience, held)
		}
		<-tick.C
	}
}

func sum(held []int) (n int) {
	for _, h := range held {
		n += h
	}
	return n
}

// TestMembers: three join, one leaves, the group is deleted, and one crashes.
func TestMembers(t *testing.T) {
	t.Parallel()
	o := group.Options{Namespace: env.Namespace(t), Name: "gateways", Role: "reconcile", Leader: "leader"}
	all := replicas(t, o, "one", "two", "three")
	until(t, all, func(held []int) bool {
		return sum(held) == 64 && min(held[0], held[1], held[2]) >= 21
	})
	report, err := group.Read(t.Context(), env.Config(t), o.Namespace, o.Name)
	if err != nil || report.Of != 64 || len(report.Members) != 3 {
		t.Errorf("the report is %+v, %v", report, err)
	}
	all[2].stop()
	until(t, all, func(held []int) bool { return sum(held) == 64 && held[2] == 0 })
	client, err := typed.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	leases := client.Leases(o.Namespace)
	was, err := leases.Get(t.Context(), o.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := leases.Delete(t.Context(), o.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, all, func(held []int) bool {
		if min(held[0], held[1]) < 32 {
			t.Errorf("While the group is deleted they hold %v.", held)
		}
		now, err := leases.Get(t.Context(), o.Name, metav1.GetOptions{})
		return err == nil && now.UID != was.UID
	})
	all[1].dead.Store(true)
	until(t, all, func(held []int) bool { return held[0] == 64 })
}

// TestLeader: slots are held when the leader's Lease is free, and it is given back with the last one.
func TestLeader(t *testing.T) {
	t.Parallel()
	o := group.Options{Namespace: env.Namespace(t), Name: "gateways", Role: "reconcile", Leader: "leader"}
	client, err := typed.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	holder, seconds := "somebody", int32(3)
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}}
	held.Spec.HolderIdentity, held.Spec.LeaseDurationSeconds = &holder, &seconds
	if _, err := client.Leases(o.Namespace).Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	one := replicas(t, o, "one")
	until(t, one, func(held []int) bool { return sum(held) == 64 })
	if waited := time.Since(begun); waited < 3*time.Second {
		t.Errorf("it has waited for %v", waited)
	}
	one[0].stop()
	until(t, one, func(held []int) bool { return sum(held) == 0 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for { // the Get fails when that is over
		l, err := client.Leases(o.Namespace).Get(ctx, "leader", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if holder := l.Spec.HolderIdentity; holder == nil || *holder == "" {
			break
		}
	}
}
