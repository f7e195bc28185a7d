package dependent_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// calls counts the calls of a function for desired state, and those without a value.
type calls struct {
	mu         sync.Mutex // functions of a graph run in fibers
	all, isNil int
}

func (c *calls) add(isNil bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	if isNil {
		c.isNil++
	}
}

func (c *calls) count() (all, isNil int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all, c.isNil
}

// setReadError makes Read fail, or work again.
func (c *cloud) setReadError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unreadable = err
}

// sized returns a graph with a database, a ConfigMap with its size, and another ConfigMap behind that. All functions
// tolerate nil.
func sized(c *cloud, login, motd *calls) *dependent.Graph[gateway] {
	g := dependent.For[gateway]()
	db := dependent.AddExternal(g, "database", c.external())
	first := dependent.Add(g, "login", func(ctx context.Context, _ *gateway) (*corev1.ConfigMap, error) {
		d := db.Child(ctx)
		login.add(d == nil)
		if d == nil {
			return configMap("login", map[string]string{"size": "none"}), nil
		}
		return configMap("login", map[string]string{"size": fmt.Sprint(d.size)}), nil
	}, dependent.After(db))
	dependent.Add(g, "motd", func(ctx context.Context, _ *gateway) (*corev1.ConfigMap, error) {
		cm := first.Child(ctx)
		motd.add(cm == nil)
		if cm == nil {
			return configMap("motd", map[string]string{"size": "none"}), nil
		}
		return configMap("motd", map[string]string{"size": cm.Data["size"]}), nil
	}, dependent.After(first))
	return g
}

func (b *bench) wantSizes(reason, size string) {
	b.t.Helper()
	for _, name := range []string{"login", "motd"} {
		if cm := b.configMap(name); cm == nil || cm.Data["size"] != size {
			b.t.Errorf("%s: %s is %v, want size %s", reason, name, cm, size)
		}
	}
}

// After a restart the external state is unknown. Until it is read, the children behind it stay unchanged.
func TestExternalUnknownAfterRestart(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		var login, motd calls
		b.run(sized(c, &login, &motd))
		b.wantSizes("at first", "1")

		c.setReadError(errClosed)
		b.run(sized(c, &login, &motd))
		<-time.After(10 * time.Minute)
		b.settle()
		b.wantSizes("while it cannot be read", "1")

		c.setReadError(nil)
		<-time.After(10 * time.Minute)
		b.settle()
		b.wantSizes("when it can be read again", "1")
		for name, calls := range map[string]*calls{"login": &login, "motd": &motd} {
			if all, isNil := calls.count(); all == 0 || isNil != 0 {
				t.Errorf("%s was computed %d times, %d times without its predecessor", name, all, isNil)
			}
		}
		b.spec(func(gw *gateway) { gw.Spec.Size = 3 })
		b.wantSizes("after a change", "3")
	})
}

// A failing read leaves the state unknown: the children behind it stay, and a report has the last value.
func TestExternalUnknownWhileReadFails(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		var login, motd calls
		g := sized(c, &login, &motd)
		b.run(g)
		b.requests()
		c.setReadError(errClosed)
		<-time.After(10 * time.Minute)
		b.settle()
		b.wantSizes("while it cannot be read", "1")
		if got := b.condition("Dependents"); got.Status != "False" {
			t.Errorf("the condition is %+v", got)
		}
		b.want("nothing is sent but the status", "patch gateways/status")
		b.delete(testbed.ConfigMaps, "motd")
		if b.configMap("motd") != nil {
			t.Error("a child behind an unknown resource was created")
		}
		c.setReadError(nil)
		<-time.After(10 * time.Minute)
		b.settle()
		b.wantSizes("when it can be read again", "1")
		if _, isNil := login.count(); isNil != 0 {
			t.Errorf("login was computed %d times without the database", isNil)
		}
	})
}

// A report no longer shows a deleted external resource. Attempts to create another one fail, so it is unknown whether
// they have created it.
func TestExternalGone(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		g := dependent.For[gateway]()
		db := dependent.AddExternal(g, "database", c.external())
		var mu sync.Mutex
		var last *database
		var unknown bool
		b.runWith(g, func(_ *gateway, r *dependent.Report) {
			mu.Lock()
			defer mu.Unlock()
			last, unknown = db.In(r), r.Nodes()[0].Unknown
		})
		seen := func() (*database, bool) {
			mu.Lock()
			defer mu.Unlock()
			return last, unknown
		}
		if d, unknown := seen(); d == nil || unknown {
			t.Fatalf("at first: %v, unknown: %v", d, unknown)
		}
		c.setReadError(errClosed)
		<-time.After(5 * time.Minute)
		b.settle()
		if d, unknown := seen(); d == nil || !unknown {
			t.Errorf("while it cannot be read: %v, unknown: %v", d, unknown)
		}
		c.mu.Lock()
		delete(c.databases, "db-1")
		c.unreadable, c.broken = nil, errClosed
		c.mu.Unlock()
		<-time.After(15 * time.Minute)
		b.settle()
		if d, unknown := seen(); d != nil || !unknown {
			t.Errorf("after its deletion: %v, unknown: %v", d, unknown)
		}
	})
}

// A node whose desired state fails leaves its child unknown: the nodes behind it keep theirs.
func TestNodeUnknownWhileDesiredFails(t *testing.T) {
	bubble(t, func(b *bench) {
		var behind calls
		graph := func(err error) *dependent.Graph[gateway] {
			g := dependent.For[gateway]()
			first := dependent.Add(g, "first", func(ctx context.Context, gw *gateway) (*corev1.ConfigMap, error) {
				if err != nil {
					return nil, err
				}
				return page(ctx, gw)
			})
			dependent.Add(g, "second", func(ctx context.Context, _ *gateway) (*corev1.ConfigMap, error) {
				cm := first.Child(ctx)
				behind.add(cm == nil)
				if cm == nil {
					return configMap("second", map[string]string{"size": "none"}), nil
				}
				return configMap("second", map[string]string{"size": cm.Data["size"]}), nil
			}, dependent.After(first))
			return g
		}
		b.run(graph(nil))
		if cm := b.configMap("second"); cm == nil || cm.Data["size"] != "1" {
			t.Fatalf("at first: %v", cm)
		}
		b.run(graph(errClosed))
		<-time.After(10 * time.Minute)
		b.settle()
		if cm := b.configMap("second"); cm == nil || cm.Data["size"] != "1" {
			t.Errorf("while the first node fails: %v", cm)
		}
		if all, isNil := behind.count(); all == 0 || isNil != 0 {
			t.Errorf("it was computed %d times, %d times without the first node", all, isNil)
		}
	})
}
