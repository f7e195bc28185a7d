package controllerruntime_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// custom is an informer of the user's own.
type custom struct{ toolscache.SharedIndexInformer }

// TestNewInformerOfClientGo uses a function that creates informers of client-go with options of its own.
func TestNewInformerOfClientGo(t *testing.T) {
	t.Parallel()
	colors := func(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Data["v"]}, nil }
	server := serve(t)
	all := map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {}} // of all namespaces, so that there is one informer
	w := peer.Ours.Open(t, server.Config(), "default", cache.Options{ByObject: all, NewInformer: func(
		lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		if _, ok := obj.(*corev1.ConfigMap); ok {
			indexers["colors"] = colors
		}
		return toolscache.NewSharedIndexInformerWithOptions(lw, obj, toolscache.SharedIndexInformerOptions{
			ResyncPeriod: resync, Indexers: indexers, ObjectDescription: "with a name of its own",
		})
	}})
	if n, err := controllerruntime.InUse(w.Cache); n != 0 || err == nil {
		t.Errorf("%d stores are in use before the start, error %v", n, err)
	}
	w.Start()
	writesAreRead(t, server, w, w.Client)
	if n, err := controllerruntime.InUse(w.Cache); n != 1 || err != nil {
		t.Errorf("%d stores are in use, error %v", n, err)
	}
	in := w.Informer(&corev1.ConfigMap{}).(toolscache.SharedIndexInformer)
	found, err := in.GetIndexer().ByIndex("colors", "red")
	peer.Must(t, err)
	if len(found) != 1 {
		t.Errorf("%d objects by an index of the function, want one", len(found))
	}
	w.Stop()
	if n, err := controllerruntime.InUse(w.Cache); n != 0 || err == nil {
		t.Errorf("%d stores are in use after the end, error %v", n, err)
	}
}

// TestNewInformerWithResync uses a function that changes the resync period.
func TestNewInformerWithResync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		peer.Must(t, err)
		defer server.Close()
		w := peer.Ours.Open(t, server.Config(), "default", cache.Options{NewInformer: func(
			lw toolscache.ListerWatcher, obj runtime.Object, _ time.Duration, indexers toolscache.Indexers,
		) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(lw, obj, time.Minute, indexers)
		}})
		w.Start()
		w.Create(w.ConfigMap("color"))
		events := peer.NewEvents()
		_, err = w.Informer(&corev1.ConfigMap{}).AddEventHandler(events)
		peer.Must(t, err)
		w.Want(events, "initial color ")
		begin := time.Now()
		w.Want(events, "update color  to color ")
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("the first resync came after %v, want a minute", took)
		}
		w.Stop()
	})
}

// TestNewInformerOfAnotherType is refused, since its informers could do anything.
func TestNewInformerOfAnotherType(t *testing.T) {
	t.Parallel()
	options := func(wrap func(toolscache.SharedIndexInformer,
		runtime.Object) toolscache.SharedIndexInformer,
	) cache.Options {
		return cache.Options{NewInformer: func(
			lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
		) toolscache.SharedIndexInformer {
			return wrap(toolscache.NewSharedIndexInformer(lw, obj, resync, indexers), obj)
		}}
	}
	for name, wrap := range map[string]func(toolscache.SharedIndexInformer, runtime.Object) toolscache.SharedIndexInformer{
		"another type": func(in toolscache.SharedIndexInformer, _ runtime.Object) toolscache.SharedIndexInformer {
			return custom{in}
		},
		"an error handler": func(in toolscache.SharedIndexInformer, _ runtime.Object) toolscache.SharedIndexInformer {
			_ = in.SetWatchErrorHandler(func(*toolscache.Reflector, error) {})
			return in
		},
		"nothing": func(toolscache.SharedIndexInformer, runtime.Object) toolscache.SharedIndexInformer { return nil },
	} {
		_, err := controllerruntime.NewCache(serve(t).Config(), options(wrap))
		if err == nil || !strings.Contains(err.Error(), "cache.Options.NewInformer returns a ") {
			t.Errorf("%s: error %v", name, err)
		}
	}

	// Only one of the kinds has an informer of the function, and InUse names it.
	server := serve(t)
	w := peer.Ours.Open(t, server.Config(), "default", options(
		func(in toolscache.SharedIndexInformer, obj runtime.Object) toolscache.SharedIndexInformer {
			switch obj.(type) {
			case *corev1.Secret:
				return custom{in}
			case *metav1.PartialObjectMetadata:
				panic("no kind")
			}
			return in
		},
	))
	w.Start()
	for _, obj := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} {
		w.Informer(obj)
	}
	n, err := controllerruntime.InUse(w.Cache)
	if n != 1 || err == nil || !strings.Contains(err.Error(), "the informer of *v1.Secret reads no store") {
		t.Errorf("%d stores are in use, error %v", n, err)
	}
}

// TestInUseOfAnotherCache: the error names the cache.
func TestInUseOfAnotherCache(t *testing.T) {
	t.Parallel()
	stock, err := cache.New(serve(t).Config(), cache.Options{})
	peer.Must(t, err)
	for _, c := range []any{stock, wrapper{stock}, nil} {
		if n, err := controllerruntime.InUse(c); n != 0 || err == nil ||
			!strings.Contains(err.Error(), "not made by NewCache") {
			t.Errorf("%d stores of %T are in use, error %v", n, c, err)
		}
	}
}

// TestRemovedInformer: a removed informer is not in use.
func TestRemovedInformer(t *testing.T) {
	t.Parallel()
	w := peer.Ours.Open(t, serve(t).Config(), "default", cache.Options{})
	w.Start()
	w.Informer(&corev1.ConfigMap{})
	w.Informer(&corev1.Secret{})
	peer.Must(t, w.Cache.RemoveInformer(context.Background(), &corev1.Secret{}))
	seen := []int{}
	w.Eventually("one store is in use", func() bool {
		n, err := controllerruntime.InUse(w.Cache)
		peer.Must(t, err)
		seen = append(seen, n)
		return n == 1
	})
	if !slices.IsSortedFunc(seen, func(a, b int) int { return b - a }) {
		t.Errorf("stores in use: %v", seen)
	}
}
