package lease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// TestCompatible: candidates of client-go and of this package compete for one Lease.
func TestCompatible(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := testbed.Server(t, apiserver.Options{})
		defer server.Close()
		client, err := typed.NewForConfig(server.Config())
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		defer all.Wait()
		upstream := func() (*leaderelection.LeaderElector, context.CancelFunc) {
			e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}, Client: client,
					LockConfig: resourcelock.ResourceLockConfig{Identity: "upstream"},
				},
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				ReleaseOnCancel: true,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			all.Go(func() { e.Run(ctx) })
			return e, stop
		}
		first, stopFirst := upstream()
		defer stopFirst()
		testbed.Settle(5 * time.Second)
		own, err := lease.New(server.Config(), lease.Options{Namespace: "a", Name: "x", Identity: "own"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		all.Go(func() { _ = own.Run(ctx) })
		testbed.Settle(time.Minute)
		if leader, err := own.Status(); leader != "upstream" || err != nil || !first.IsLeader() {
			t.Fatalf("%q leads, %v", leader, err)
		}
		stopFirst()
		testbed.Settle(5 * time.Second)
		if !leads(t, own) {
			t.Fatal("the released Lease is not taken")
		}
		second, stopSecond := upstream()
		defer stopSecond()
		testbed.Settle(time.Minute)
		if !leads(t, own) || second.IsLeader() {
			t.Fatal("the Lease is not respected")
		}
		stop()
		testbed.Settle(5 * time.Second)
		if !second.IsLeader() {
			t.Error("the released Lease is not taken by the other candidate")
		}
	})
}
