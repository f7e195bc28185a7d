package reconcile_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// A host that stops while a reconciler works waits for it. The bubble stops the host.
func TestStopWhileReconciling(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(ctx context.Context, _ int, _ *gateway) (reconcile.Result, error) {
			<-ctx.Done()
			<-time.After(time.Second) // slow to stop
			return reconcile.Retry(context.Cause(ctx))
		})
		b.put("web")
		b.start()
		b.wantCalls(1, "it is at work")
	})
}

// stopper is a mapper that stops the process when it maps a kind.
type stopper struct {
	meta.RESTMapper
	kind string
	stop context.CancelFunc
}

func (s stopper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if gk.Kind == s.kind {
		s.stop()
	}
	return s.RESTMapper.RESTMapping(gk, versions...)
}

// A stop while the controller opens any of its watches is not a failure, and leaves no watch open.
func TestStopWhileOpening(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Gateway", "ConfigMap"} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(b *bench) {
				ctx, stop := context.WithCancel(b.ctx)
				defer stop()
				h := testbed.NewHost(t, b.server.Config(), stopper{testbed.Mapper(testbed.Resources()), kind, stop})
				reconcile.New[gateway](h, "gateways", noop, reconcile.Owns[corev1.ConfigMap]())
				h.Start(ctx)
				testbed.Settle(time.Minute)
				if ctx.Err() == nil {
					t.Error("the process was not stopped while it opened its watches")
				}
				if n := b.server.Log().Open(apiserver.Match{Verb: "watch"}); n != 0 {
					t.Errorf("%d watches are left open", n)
				}
				if err := h.Stop(); err != nil {
					t.Errorf("a stop is a failure: %v", err)
				}
				b.host.Start(b.ctx)
			})
		})
	}
}
