package e2e_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

// One program has a single watch of a kind. It is a watch of whole objects if any declaration needs more than metadata,
// in any order of starts.
func TestOneProgramWatchesOnce(t *testing.T) {
	secrets, configMaps := corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("ConfigMap")
	b := setup(t)
	var calls atomic.Int32
	observe.Source[corev1.Secret](b.rt, "secrets")
	observe.On(b.rt, "secrets", func(_ context.Context, e observe.Event[metav1.PartialObjectMetadata]) error {
		if o := e.Object(); o != nil && o.Kind == "Secret" && o.APIVersion == "v1" {
			calls.Add(1)
		}
		return nil
	})
	type meta = metav1.PartialObjectMetadata
	none := reconcile.Func[corev1.Secret](func(context.Context, *corev1.Secret) (reconcile.Result, error) {
		return reconcile.Done, nil
	})
	reconcile.New(b.rt, "secrets", none,
		reconcile.Owns[meta](reconcile.Kind(secrets)), reconcile.Owns[meta](reconcile.Kind(configMaps)))
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "s"}}
	if err := b.user.Create(b.ctx, s); err != nil {
		t.Fatal(err)
	}
	b.run()
	await(b.ctx, t, func() bool { return calls.Load() > 0 }) // an event may be repeated
	held := func(resource string) (metadata []bool) {
		for _, st := range b.rt.Cache().Stores(corev1.SchemeGroupVersion.WithResource(resource)) {
			metadata = append(metadata, st.Options().Content.Metadata)
		}
		return metadata
	}
	await(b.ctx, t, func() bool { return len(held("configmaps")) > 0 }) // the controller has opened its watches
	if got := held("secrets"); !slices.Equal(got, []bool{false}) {
		t.Errorf("stores of secrets hold metadata only: %v", got)
	}
	if got := held("configmaps"); !slices.Equal(got, []bool{true}) {
		t.Errorf("stores of config maps hold metadata only: %v", got)
	}
}
