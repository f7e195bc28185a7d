package dependent_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

func TestNothingToDoSendsNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		dependent.Add(g, "page", page)
		b.run(g)
		b.want("the child is created after a live read, and the status written",
			"get configmaps", "patch configmaps", "patch gateways/status")
		if cm := b.configMap("web-page"); cm == nil || cm.Data["size"] != "1" || len(cm.OwnerReferences) != 1 {
			t.Fatalf("got %v", cm)
		}
		for range 20 {
			b.c.Trigger(web, "test")
			b.settle()
		}
		b.want("no request is needed")

		b.change("web-page", func(data map[string]string) { data["theirs"] = "1" })
		b.want("a foreign field needs no correction")
		b.change("web-page", func(data map[string]string) { data["size"] = "7" })
		b.want("a changed owned field costs one write", "patch configmaps")
		if cm := b.configMap("web-page"); cm.Data["size"] != "1" || cm.Data["theirs"] != "1" {
			t.Errorf("got %v", cm.Data)
		}
		b.spec(func(gw *gateway) { gw.Spec.Size = 2 })
		b.want("a newer spec costs one write, and one of the status for its generation",
			"patch configmaps", "patch gateways/status")
	})
}

func TestAnOrder(t *testing.T) {
	bubble(t, func(b *bench) {
		g := dependent.For[gateway]()
		first := dependent.Add(g, "first", page, dependent.Ready(isOpen))
		second := dependent.Add(g, "second", func(ctx context.Context, _ *gateway) (*corev1.ConfigMap, error) {
			return configMap("second", map[string]string{"seen": first.Child(ctx).Data["open"]}), nil
		}, dependent.After(first))
		dependent.Add(g, "third", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return configMap("third", nil), nil
		}, dependent.After(second))
		b.run(g)
		b.want("the first is created, and the finalizer that keeps the order", "patch gateways",
			"get configmaps", "patch configmaps", "patch gateways/status")
		if c := b.condition("Ready"); c.Status != "Unknown" {
			t.Errorf("got %+v", c)
		}
		if n := b.engine.Live(); n != 1 {
			t.Errorf("%d fibers wait, want 1", n)
		}
		<-time.After(time.Hour)
		b.want("it is waited for without a request")

		b.change("web-page", func(data map[string]string) { data["open"] = "yes" })
		if cm := b.configMap("second"); cm == nil || cm.Data["seen"] != "yes" || b.configMap("third") == nil {
			t.Fatalf("got %v", cm)
		}
		if c := b.condition("Ready"); c.Status != "True" {
			t.Errorf("got %+v", c)
		}
		if n := b.engine.Live(); n != 0 {
			t.Errorf("%d fibers are left", n)
		}

		b.requests()
		b.delete(testbed.Gateways, "web")
		var deleted []string
		for _, r := range b.server.Log().Requests {
			if r.Verb == "delete" {
				deleted = append(deleted, r.Name)
			}
		}
		if len(deleted) != 3 || deleted[0] != "third" || deleted[1] != "second" || deleted[2] != "web-page" {
			t.Errorf("deleted %q", deleted)
		}
		if b.object(testbed.Gateways, "web") != nil {
			t.Error("the gateway still exists")
		}
	})
}

func TestARestartContinues(t *testing.T) {
	bubble(t, func(b *bench) {
		declare := func() *dependent.Graph[gateway] {
			g := dependent.For[gateway]()
			first := dependent.Add(g, "first", page, dependent.Ready(isOpen))
			dependent.Add(g, "second", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
				return configMap("second", nil), nil
			}, dependent.After(first))
			return g
		}
		b.run(declare())
		b.requests()
		b.run(declare())
		b.want("the owned fields are unknown after the restart: one apply, which changes nothing", "patch configmaps")
		if n := b.engine.Live(); n != 1 {
			t.Errorf("%d fibers wait, want 1", n)
		}
		b.change("web-page", func(data map[string]string) { data["open"] = "yes" })
		if b.configMap("second") == nil {
			t.Error("it did not continue")
		}
	})
}
