package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/reconcile"
)

// A reconciler finds its own writes by an index in the same pass, in the version that the server returned. A changed
// object is found under its new value only, and a deleted object is not found.
func TestOwnWritesByIndex(t *testing.T) {
	b := setup(t)
	h, err := cache.AcquireFor[corev1.ConfigMap](b.rt.Cache())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	if err := cache.IndexBy(cache.Of[corev1.ConfigMap](h.Store), "colour",
		func(cm *corev1.ConfigMap) []string { return []string{cm.Data["colour"]} }); err != nil {
		t.Fatal(err)
	}
	const passes = 20
	var problems []string
	done := make(chan struct{})
	b.start(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
		if n > 1 { // an own deletion is not an echo
			return reconcile.Done, nil
		}
		defer close(done)
		c := b.rt.Client()
		// found checks that the index has exactly one object of this version under a value, or none for an empty version.
		found := func(when, colour, version string) {
			var got []string
			for cm, err := range client.List[corev1.ConfigMap](ctx, c, client.Index("colour", colour),
				client.InNamespace(g.Namespace)) {
				if err != nil {
					problems = append(problems, fmt.Sprintf("%s: %v", when, err))
					return
				}
				got = append(got, cm.ResourceVersion)
			}
			if version == "" && len(got) != 0 || version != "" && (len(got) != 1 || got[0] != version) {
				problems = append(problems, fmt.Sprintf("%s: the index has versions %v of %s, want %q", when, got, colour, version))
			}
		}
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name},
			Data:       map[string]string{"colour": "0"},
		}
		if err := errors.Join(reconcile.Own(c, g, cm), c.Create(ctx, cm)); err != nil {
			problems = append(problems, err.Error())
			return reconcile.Terminal(err)
		}
		found("created", "0", cm.ResourceVersion)
		for i := 1; i <= passes; i++ {
			old, now := fmt.Sprint(i-1), fmt.Sprint(i)
			if err := client.Modify(ctx, c, cm, func(cm *corev1.ConfigMap) error {
				cm.Data["colour"] = now
				return nil
			}); err != nil {
				problems = append(problems, err.Error())
				return reconcile.Terminal(err)
			}
			found("modified", now, cm.ResourceVersion)
			found("modified", old, "")
		}
		if err := c.Delete(ctx, cm); err != nil {
			problems = append(problems, err.Error())
			return reconcile.Terminal(err)
		}
		found("deleted", fmt.Sprint(passes), "")
		return reconcile.Done, nil
	}, reconcile.Owns[corev1.ConfigMap]())
	b.create("web")
	select {
	case <-done:
	case <-b.ctx.Done():
		t.Fatal("the object is not reconciled")
	}
	if len(problems) > 0 {
		t.Error(problems)
	}
}
