package controllerruntime_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// has says whether the cache has a config map of the namespace of the test.
func (w *world) has(name string) bool {
	return w.cache.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &corev1.ConfigMap{}) == nil
}

func TestEvents(t *testing.T) {
	alike(t, func(t *testing.T, p peer) {
		w := p.start(t, cache.Options{})
		w.create(w.configMap("there", "v", "1"))
		in := w.informer(&corev1.ConfigMap{})
		e, late := newEvents(), newEvents()
		reg, err := in.AddEventHandler(e)
		must(t, err)
		w.want(e, "initial there 1")
		<-reg.HasSyncedChecker().Done()

		cm := w.configMap("new", "v", "1")
		w.create(cm)
		w.want(e, "add new 1")
		must(t, w.live.Patch(w.ctx, cm, merge(`{"data":{"v":"2"}}`)))
		w.want(e, "update new 1 to new 2")
		must(t, w.live.Delete(w.ctx, w.configMap("there")))
		w.want(e, "delete there 1")
		_, err = in.AddEventHandler(late)
		must(t, err)
		w.want(late, "initial new 2")

		must(t, in.RemoveEventHandler(reg))
		must(t, in.RemoveEventHandler(reg)) // again, which is nothing
		must(t, w.live.Delete(w.ctx, cm))
		w.want(late, "delete new 2")
		w.create(w.configMap("new", "v", "3"))
		w.want(late, "add new 3")
		if len(e.c) > 0 {
			t.Errorf("a handler that was removed was given %q", <-e.c)
		}
	})
}

func TestRegistrationHasSyncedAfterItsHandler(t *testing.T) {
	alike(t, func(t *testing.T, p peer) {
		w := p.start(t, cache.Options{})
		w.create(w.configMap("there"))
		in := w.informer(&corev1.ConfigMap{})
		called, release := make(chan struct{}), make(chan struct{})
		reg, err := in.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			close(called)
			<-release
		}})
		must(t, err)
		<-called
		if reg.HasSynced() {
			t.Error("the registration has synced before its handler has returned")
		}
		close(release)
		<-reg.HasSyncedChecker().Done()
		if !reg.HasSynced() || reg.HasSyncedChecker().Name() == "" {
			t.Error("the registration has not synced, or has no name")
		}
	})
}
