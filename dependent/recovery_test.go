package dependent_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// failedGauge returns the value of fairlead_reconcile_objects for failed objects.
func (b *bench) failedGauge() float64 {
	b.t.Helper()
	families, err := b.host.Registry().Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "fairlead_reconcile_objects" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "state" && l.GetValue() == "failed" {
					return m.GetGauge().GetValue()
				}
			}
		}
	}
	b.t.Fatal("there is no gauge of failed objects")
	return 0
}

// attempts returns how often the gateway has failed in a row, 0 if it has not.
func (b *bench) attempts() int {
	b.t.Helper()
	synctest.Wait()
	all := b.c.Failures()
	if n := b.failedGauge(); int(n) != len(all) {
		b.t.Errorf("the gauge says %v failures, and there are %d", n, len(all))
	}
	if len(all) == 0 {
		return 0
	}
	return all[0].Attempts
}

// A failure ends with the next successful round, although the fiber of a graph with an external resource never ends.
func TestExternalFailureEnds(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		c.broken = errClosed
		g := dependent.For[gateway]()
		dependent.AddExternal(g, "database", c.external())
		b.run(g)
		<-time.After(time.Minute)
		if n := b.attempts(); n < 2 {
			t.Fatalf("%d attempts have failed in a minute", n)
		}
		c.mu.Lock()
		c.broken = nil
		c.mu.Unlock()
		<-time.After(10 * time.Minute)
		b.settle()
		if n := b.attempts(); n != 0 || c.count() != 1 {
			t.Errorf("after a successful round: %d attempts count as failed, and %d resources exist", n, c.count())
		}
		of := why.Object{Group: testbed.GroupVersion.Group, Kind: "Gateway", Namespace: web.Namespace, Name: web.Name}
		for _, cause := range b.c.Why(t.Context(), of) {
			if strings.Contains(cause.Message, errClosed.Error()) {
				t.Errorf("after a successful round, why still gives %q", cause.Message)
			}
		}

		// The next failure counts as a first one, with the shortest back-off.
		c.setReadError(errClosed)
		for b.attempts() == 0 {
			<-time.After(100 * time.Millisecond)
		}
		f := b.c.Failures()[0]
		if wait := f.Next.Sub(f.At); f.Attempts != 1 || wait > time.Second {
			t.Errorf("a failure after a successful round is attempt %d, and is retried after %v", f.Attempts, wait)
		}
		c.setReadError(nil)
		<-time.After(10 * time.Second)
		b.settle()
		if n := b.attempts(); n != 0 {
			t.Errorf("after the second recovery: %d attempts count as failed", n)
		}
	})
}

// Failures with successful rounds between them do not exhaust the attempts.
func TestExternalAttemptsStartAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		g := dependent.For[gateway]()
		dependent.AddExternal(g, "database", c.external())
		b.run(g, reconcile.MaxAttempts(3))
		for i := range 5 {
			c.setReadError(errClosed)
			for b.attempts() == 0 {
				<-time.After(100 * time.Millisecond)
			}
			c.setReadError(nil)
			<-time.After(10 * time.Second)
			b.settle()
			if n := b.attempts(); n != 0 {
				t.Fatalf("after outage %d: %d attempts count as failed", i+1, n)
			}
		}
	})
}

// A failure also ends while the fiber waits for a child that is not ready.
func TestFailureEndsWhileChildWaits(t *testing.T) {
	bubble(t, func(b *bench) {
		var fails atomic.Bool
		fails.Store(true)
		g := dependent.For[gateway]()
		dependent.Add(g, "page", func(ctx context.Context, gw *gateway) (*corev1.ConfigMap, error) {
			if fails.Load() {
				return nil, errClosed
			}
			return page(ctx, gw)
		}, dependent.Ready(isOpen))
		b.run(g)
		if f := b.c.Failures(); len(f) != 1 || !errors.Is(f[0].Err, errClosed) {
			t.Fatalf("got the failures %v", f)
		}
		fails.Store(false)
		<-time.After(time.Minute)
		b.settle()
		if n := b.attempts(); n != 0 || b.configMap("web-page") == nil {
			t.Errorf("while it waits for the child: %d attempts count as failed", n)
		}
		if got := b.condition("Dependents"); got.Reason != "Waiting" {
			t.Errorf("the condition is %+v", got)
		}
	})
}

// A failure of the deletion ends as well, while the fiber waits for a child that has a finalizer.
func TestFailureEndsWhileChildIsDeleted(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		var fails atomic.Bool
		fails.Store(true)
		e := c.external()
		remove := e.Delete
		e.Delete = func(ctx context.Context, gw *gateway, key, id string) error {
			if fails.Load() {
				return errClosed
			}
			return remove(ctx, gw, key, id)
		}
		g := dependent.For[gateway]()
		dependent.AddExternal(g, "database", e)
		dependent.Add(g, "page", page)
		b.run(g)
		finalizers := func(names ...string) {
			testbed.Change(b.t, b.server, testbed.ConfigMaps, client.Key{Namespace: "a", Name: "web-page"},
				func(u *unstructured.Unstructured) { u.SetFinalizers(names) })
			b.settle()
		}
		finalizers("example.com/wait")
		b.delete(testbed.Gateways, "web")
		if n := b.attempts(); n == 0 {
			t.Fatal("the deletion has not failed")
		}
		fails.Store(false)
		<-time.After(time.Minute)
		b.settle()
		if n := b.attempts(); n != 0 || b.configMap("web-page") == nil {
			t.Errorf("while the child is deleted: %d attempts count as failed", n)
		}
		finalizers()
		_ = b.server.Delete(t.Context(), testbed.ConfigMaps, "a", "web-page", metav1.DeleteOptions{}) // if it still exists
		b.settle()
		if b.object(testbed.Gateways, "web") != nil {
			t.Error("the gateway was not deleted")
		}
	})
}
