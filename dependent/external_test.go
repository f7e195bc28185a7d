package dependent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/why"
)

// cloud has the external databases, by id.
type cloud struct {
	mu         sync.Mutex // of the test and of the operator
	databases  map[string]*database
	keys       map[string]string
	made       int
	reads      int
	broken     error // of Create
	unreadable error // of Read
}

type database struct {
	size int
	up   bool
}

func newCloud() *cloud { return &cloud{databases: map[string]*database{}, keys: map[string]string{}} }

func (c *cloud) external() dependent.External[gateway, database] {
	return dependent.External[gateway, database]{
		Create: func(_ context.Context, gw *gateway, key string) (string, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.broken != nil {
				return "", c.broken
			}
			if id := c.keys[key]; id != "" {
				return id, nil
			}
			c.made++
			id := fmt.Sprintf("db-%d", c.made)
			c.databases[id], c.keys[key] = &database{size: gw.Spec.Size}, id
			return id, nil
		},
		Read: func(_ context.Context, _ *gateway, id string) (*database, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.reads++
			if c.unreadable != nil {
				return nil, c.unreadable
			}
			if d := c.databases[id]; d != nil {
				seen := *d
				return &seen, nil
			}
			return nil, nil
		},
		Differs: func(gw *gateway, d *database) bool { return d.size != gw.Spec.Size },
		Update: func(_ context.Context, gw *gateway, id string, _ *database) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.databases[id].size = gw.Spec.Size
			return nil
		},
		Delete: func(_ context.Context, _ *gateway, key, id string) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.databases, c.keys[key])
			delete(c.databases, id)
			return nil
		},
		PollInterval: time.Minute, DriftInterval: time.Minute,
	}
}

var errClosed = errors.New("the cloud is closed")

func (c *cloud) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

func (c *cloud) get(id string) *database {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.databases[id]
}

func TestExternal(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		g := dependent.For[gateway]()
		db := dependent.AddExternal(g, "database", c.external(), dependent.Ready(func(d *database) bool { return d.up }))
		dependent.Add(g, "login", func(ctx context.Context, _ *gateway) (*corev1.ConfigMap, error) {
			return configMap("login", map[string]string{"size": fmt.Sprint(db.Child(ctx).size)}), nil
		}, dependent.After(db))
		b.run(g)
		if c.count() != 1 || b.configMap("login") != nil {
			t.Fatalf("%d were created", c.count())
		}
		if v := alloc.Values(testbed.Stored(b.server, web)); v["database"] != "db-1" {
			t.Errorf("recorded is %v", v)
		}
		b.requests()
		c.mu.Lock()
		c.databases["db-1"].up = true
		reads := c.reads
		c.mu.Unlock()
		<-time.After(time.Minute)
		b.settle()
		if cm := b.configMap("login"); cm == nil || cm.Data["size"] != "1" {
			t.Errorf("when it is ready: got %v", cm)
		}
		<-time.After(10 * time.Minute)
		c.mu.Lock()
		n := c.reads - reads
		c.mu.Unlock()
		if n < 10 || n > 14 {
			t.Errorf("it was read %d times in eleven minutes", n)
		}
		b.want("it is read, and nothing is sent to the API server but the child and the status",
			"get configmaps", "patch configmaps", "patch gateways/status")

		b.spec(func(gw *gateway) { gw.Spec.Size = 3 })
		if c.get("db-1").size != 3 || b.configMap("login").Data["size"] != "3" {
			t.Error("it was not updated")
		}
		c.mu.Lock()
		delete(c.databases, "db-1")
		c.mu.Unlock()
		<-time.After(2 * time.Minute)
		b.settle()
		if c.count() != 2 || c.get("db-2") == nil {
			t.Errorf("a resource deleted outside was not recreated: %d were created", c.count())
		}
		b.delete(testbed.Gateways, "web")
		if c.get("db-2") != nil || b.object(testbed.Gateways, "web") != nil {
			t.Error("something is left")
		}
	})
}

// TestExternalIntervals checks the default intervals: seconds and back-off until the resource is ready, then minutes.
func TestExternalIntervals(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		e := c.external()
		e.PollInterval, e.DriftInterval = 0, 0
		g := dependent.For[gateway]()
		dependent.AddExternal(g, "database", e, dependent.Ready(func(d *database) bool { return d.up }))
		set := func(up bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.databases["db-1"].up = up
		}
		reads := func(during time.Duration) int {
			c.mu.Lock()
			before := c.reads
			c.mu.Unlock()
			testbed.Settle(during)
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.reads - before
		}
		b.run(g)
		// Without jitter it is read after 2, 6, 14, 30 and 62 seconds, then each minute. Jitter at most halves a wait.
		if n := reads(time.Minute); n < 3 || n > 8 {
			t.Errorf("it was read %d times in the first minute in which it is not ready", n)
		}
		if n := reads(time.Hour); n < 59 || n > 122 {
			t.Errorf("it was read %d times in the next hour", n)
		}
		set(true)
		testbed.Settle(time.Minute)
		if got := b.condition("Dependents"); got.Status != "True" {
			t.Errorf("a minute after it has become ready: %+v", got)
		}
		if n := reads(time.Hour); n < 5 || n > 6 {
			t.Errorf("a ready one was read %d times in an hour", n)
		}
		set(false)
		for began := time.Now(); b.condition("Dependents").Reason != "Waiting"; testbed.Settle(time.Second) {
			if time.Since(began) > 10*time.Minute+time.Second {
				t.Fatalf("it was not found to be unready: %+v", b.condition("Dependents"))
			}
		}
		if n := reads(time.Minute); n < 3 || n > 8 {
			t.Errorf("it was read %d times in the minute after it was unready", n)
		}
	})
}

// TestExternalTimeout checks that a resource that is not ready in time is reported once, and polling continues.
func TestExternalTimeout(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		e := c.external()
		e.PollInterval, e.DriftInterval = time.Minute, time.Hour // the limit comes before the second read
		g := dependent.For[gateway]()
		dependent.AddExternal(g, "database", e, dependent.Ready(func(d *database) bool { return d.up }),
			dependent.Timeout(5*time.Second))
		b.run(g)
		if got := b.condition("Dependents"); got.Reason != "Waiting" {
			t.Errorf("before the limit: %+v", got)
		}
		testbed.Settle(5 * time.Second)
		got := b.condition("Dependents")
		if got.Reason != "Failed" || !strings.Contains(got.Message, "not ready in time (5s)") {
			t.Errorf("after the limit: %+v", got)
		}
		b.requests()
		testbed.Settle(5 * time.Minute)
		b.want("the failure is not retried and written once")
		if f := b.c.Failures(); len(f) > 0 {
			t.Errorf("it counts as a failure of the controller: %+v", f)
		}
		causes := b.c.Why(b.t.Context(), why.Object{
			Group: testbed.GroupVersion.Group, Kind: "Gateway", Namespace: web.Namespace, Name: web.Name,
		})
		if len(causes) != 1 || causes[0].Type != why.DeadlinePassed || causes[0].Since.IsZero() {
			t.Errorf("the causes are %+v", causes)
		}
		c.mu.Lock()
		c.databases["db-1"].up = true
		c.mu.Unlock()
		testbed.Settle(2 * time.Minute)
		if got := b.condition("Dependents"); got.Status != "True" {
			t.Errorf("after it has become ready: %+v", got)
		}
	})
}

// TestExternalBesideWorkers checks that slow functions of an external resource hold no worker of the engine, which has
// 64 of them.
func TestExternalBesideWorkers(t *testing.T) {
	bubble(t, func(b *bench) {
		const gateways = 80
		c := newCloud()
		e := c.external()
		create := e.Create
		var mu sync.Mutex
		inside, most := 0, 0
		e.Create = func(ctx context.Context, gw *gateway, key string) (string, error) {
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			time.Sleep(10 * time.Second)
			mu.Lock()
			inside--
			mu.Unlock()
			return create(ctx, gw, key)
		}
		for i := range gateways - 1 {
			testbed.Put(t, b.server, testbed.New("a", fmt.Sprint("web-", i)))
		}
		g := dependent.For[gateway]()
		dependent.AddExternal(g, "database", e)
		b.run(g)
		testbed.Settle(20 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most != gateways || c.count() != gateways {
			t.Errorf("%d calls ran at a time, and %d resources were created", most, c.count())
		}
	})
}

func TestExternalFails(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		c.broken = errClosed
		g := dependent.For[gateway]()
		db := dependent.AddExternal(g, "database", c.external())
		dependent.Add(g, "login", page, dependent.After(db))
		dependent.Add(g, "other", func(context.Context, *gateway) (*corev1.ConfigMap, error) {
			return configMap("other", nil), nil
		})
		b.run(g)
		if f := b.c.Failures(); len(f) != 1 || !errors.Is(f[0].Err, errClosed) {
			t.Errorf("got %v", f)
		}
		if b.configMap("web-page") != nil || b.configMap("other") == nil {
			t.Error("its successor was created, or another child was not")
		}
		c.mu.Lock()
		c.broken = nil
		c.mu.Unlock()
		<-time.After(10 * time.Minute)
		b.settle()
		if b.configMap("web-page") == nil || c.count() != 1 {
			t.Error("it was not retried")
		}
	})
}

// TestExternalDeletedLast checks D3 where the first node is external: it is deleted after the children behind it.
func TestExternalDeletedLast(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		e := c.external()
		remove, early := e.Delete, false
		e.Delete = func(ctx context.Context, gw *gateway, key, id string) error {
			early = early || b.configMap("web-page") != nil
			return remove(ctx, gw, key, id)
		}
		g := dependent.For[gateway]()
		db := dependent.AddExternal(g, "database", e)
		dependent.Add(g, "login", page, dependent.After(db))
		b.run(g)
		if b.configMap("web-page") == nil {
			t.Fatal("the child was not created")
		}
		b.delete(testbed.Gateways, "web")
		if b.object(testbed.Gateways, "web") != nil || c.get("db-1") != nil {
			t.Error("something is left")
		}
		if early {
			t.Error("the resource was deleted before its successor")
		}
	})
}

// TestExternalUndecided checks that an error about whether a resource is wanted is a failure, which is retried.
func TestExternalUndecided(t *testing.T) {
	bubble(t, func(b *bench) {
		c := newCloud()
		var mu sync.Mutex
		failure := errClosed
		g := dependent.For[gateway]()
		dependent.AddExternal(g, "database", c.external(),
			dependent.When(func(context.Context, *gateway) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return true, failure
			}))
		b.run(g)
		if f := b.c.Failures(); len(f) != 1 || !errors.Is(f[0].Err, errClosed) || c.count() != 0 {
			t.Errorf("got the failures %v, and %d resources", f, c.count())
		}
		mu.Lock()
		failure = nil
		mu.Unlock()
		<-time.After(10 * time.Minute)
		b.settle()
		if c.count() != 1 {
			t.Errorf("after the error: %d resources", c.count())
		}
	})
}
