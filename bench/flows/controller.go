package main

import (
	"context"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// controller runs a controller of controller-runtime with the given keys in its queue. wait returns when the
// controller has stopped after the end of ctx.
func controller(ctx context.Context, workers int, keys []string, fn reconcile.Func) (wait func(), err error) {
	c, err := ctrl.NewUnmanaged("bench", ctrl.Options{
		Reconciler: fn, MaxConcurrentReconciles: workers, SkipNameValidation: new(true),
		LogConstructor: func(*reconcile.Request) logr.Logger { return logr.Discard() },
	})
	if err != nil {
		return nil, err
	}
	if err := c.Watch(
		source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			for _, key := range keys {
				queue.Add(request(key))
			}
			return nil
		}),
	); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Start(ctx) // returns when ctx ends
	}()
	return func() { <-done }, nil
}

func request(key string) reconcile.Request {
	namespace, name, _ := strings.Cut(key, "/")
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}
