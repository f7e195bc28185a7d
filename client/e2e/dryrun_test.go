package e2e_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/fairlead-io/fairlead/client"
)

// TestDryRunOfAnEviction: a dry run of an eviction changes neither the server nor the cache.
func TestDryRunOfAnEviction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.watch(corev1.SchemeGroupVersion.WithKind("Pod"))
	// A pod that is bound to a node has a grace period.
	p := &corev1.Pod{ObjectMeta: b.meta("web"), Spec: corev1.PodSpec{
		NodeName: "nowhere", Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}
	if err := b.own.Create(b.ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := h.WaitForNamespace(b.ctx, b.namespace, p.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	version := p.ResourceVersion
	eviction := &policyv1.Eviction{ObjectMeta: b.meta("web")}
	if err := b.own.SubResource("eviction").Create(b.ctx, p, client.Body(eviction), client.DryRun()); err != nil {
		t.Fatal(err)
	}
	var live corev1.Pod
	if err := b.own.Live().Get(b.ctx, client.KeyOf(p), &live); err != nil || live.ResourceVersion != version {
		t.Errorf("the server has %+v, %v", live, err)
	}
	got, err := client.Get[corev1.Pod](b.ctx, b.own, client.KeyOf(p))
	if err != nil || got.ResourceVersion != version {
		t.Errorf("a read returns %+v, %v", got, err)
	}
	if n := h.OverlayStats().Entries; n != 0 {
		t.Errorf("%d entries in the overlay", n)
	}
}
