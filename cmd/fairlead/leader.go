package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The Lease of the operations controller and its times, the usual ones of Kubernetes.
const (
	leaseName     = "fairlead-controller"
	leaseDuration = 15 * time.Second
	leaseRenew    = 10 * time.Second
	leaseRetry    = 2 * time.Second
)

var errDeposed = errors.New("lost the Lease " + leaseName + ": another replica leads now")

// whileLeading waits for the Lease, runs fn while it is held, and gives it back when fn has returned. It returns errDeposed
// when the Lease was lost.
func whileLeading(ctx context.Context, config *rest.Config, namespace string, log *slog.Logger, fn func(context.Context) error) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot elect a leader: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	identity := fmt.Sprintf("%s_%d_%s", host, os.Getpid(), uuid.NewString())
	// The Lease is given back by cancelling this context, so only after fn has returned.
	election, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	defer giveBack()
	began := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}, Client: clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry, ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { began <- leading },
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				log.InfoContext(ctx, "leader", "identity", leader, "self", leader == identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("cannot elect a leader: %w", err)
	}
	elected := make(chan struct{})
	go func() {
		defer close(elected)
		elector.Run(election)
	}()
	defer func() { giveBack(); <-elected }()
	select {
	case leading := <-began:
		term, deposed := context.WithCancelCause(ctx)
		defer deposed(nil)
		context.AfterFunc(leading, func() { deposed(errDeposed) })
		err := fn(term)
		if ctx.Err() == nil && errors.Is(context.Cause(term), errDeposed) {
			return errDeposed
		}
		return err
	case <-ctx.Done():
		return nil
	}
}
