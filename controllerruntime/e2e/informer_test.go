package e2e_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
)

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

func TestEvents(t *testing.T) {
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		w := start(t, p, cache.Options{})
		w.Create(w.ConfigMap("there", "v", "1"))
		in := w.Informer(&corev1.ConfigMap{})
		e, late := peer.NewEvents(), peer.NewEvents()
		reg, err := in.AddEventHandler(e)
		peer.Must(t, err)
		w.Want(e, "initial there 1")
		<-reg.HasSyncedChecker().Done()

		cm := w.ConfigMap("new", "v", "1")
		w.Create(cm)
		w.Want(e, "add new 1")
		peer.Must(t, w.Live.Patch(w.Ctx, cm, merge(`{"data":{"v":"2"}}`)))
		w.Want(e, "update new 1 to new 2")
		peer.Must(t, w.Live.Delete(w.Ctx, w.ConfigMap("there")))
		w.Want(e, "delete there 1")
		_, err = in.AddEventHandler(late)
		peer.Must(t, err)
		w.Want(late, "initial new 2")

		peer.Must(t, in.RemoveEventHandler(reg))
		peer.Must(t, in.RemoveEventHandler(reg)) // a second time, without effect
		peer.Must(t, w.Live.Delete(w.Ctx, cm))
		w.Want(late, "delete new 2")
		w.Create(w.ConfigMap("new", "v", "3"))
		w.Want(late, "add new 3")
		if len(e.C) > 0 {
			t.Errorf("a removed handler was called with %q", <-e.C)
		}
	})
}

func TestRegistrationHasSyncedAfterItsHandler(t *testing.T) {
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		w := start(t, p, cache.Options{})
		w.Create(w.ConfigMap("there"))
		in := w.Informer(&corev1.ConfigMap{})
		called, release := make(chan struct{}), make(chan struct{})
		reg, err := in.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			close(called)
			<-release
		}})
		peer.Must(t, err)
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
