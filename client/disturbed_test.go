package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/seed"
)

// disturber disturbs a third of a client's requests about single config maps. It drops the request or its response, or
// changes the object as another client just before.
type disturber struct {
	seed    uint64
	name    string
	foreign *client.Client

	mu   sync.Mutex
	sent int
	log  []string
}

func (d *disturber) client(t *testing.T, cfg *rest.Config, o client.Options) *client.Client {
	var err error
	if o.Call, err = call.New(call.Options{Config: disturb.Config(cfg, d.roundTrip)}); err != nil {
		t.Fatal(err)
	}
	o.FieldOwner = d.name
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (d *disturber) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	if !strings.Contains(r.URL.Path, "/configmaps/") {
		return next.RoundTrip(r)
	}
	d.mu.Lock()
	d.sent++
	fault := disturb.Choose(d.seed, d.name, d.sent)
	d.log = append(d.log, fmt.Sprintf("%s %s %s", d.name, r.Method, fault))
	n := d.sent
	d.mu.Unlock()
	return fault.RoundTrip(r, next, func() {
		patch := fmt.Sprintf(`{"data":{"touched":"%s %d"}}`, d.name, n)
		_ = d.foreign.Patch(r.Context(), configMap("shared"), client.RawPatch(types.MergePatchType, []byte(patch)))
	})
}

// increment is not idempotent.
func increment(cm *corev1.ConfigMap) error {
	n, err := strconv.Atoi(cm.Data["n"])
	if err != nil {
		return err
	}
	cm.Data["n"] = strconv.Itoa(n + 1)
	return nil
}

// TestDisturbedCounters has three clients increment one number while a third of their requests fail. Each Modify that
// returned nil has counted once. A failed one has counted at most once, and then reports an unknown outcome. Reads show
// the written number.
func TestDisturbedCounters(t *testing.T) {
	t.Parallel()
	seed.Play(t, 5, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { disturbedCounters(t, seed) })
	})
}

func disturbedCounters(t *testing.T, seed uint64) {
	c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
	defer c.close()
	// from here on the server keeps managedFields
	if err := c.client.Apply(c.ctx, configMap("shared", "n", "0")); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	counted, inDoubt := 0, 0
	var log []string
	for i, name := range []string{"one", "two", "three"} {
		d := &disturber{seed: seed, name: name, foreign: c.client}
		o := client.Options{Mapper: c.client.Mapper()}
		policy := call.Policy{}
		if seed%2 == 1 {
			policy = call.Policy{
				Retries: 1, Base: time.Millisecond, Cap: 5 * time.Millisecond,
				Budget: &call.Budget{PerSecond: 1000},
			}
		}
		o.Policy = policy
		if i < 2 {
			o.Cache = c.cache
		}
		cl := d.client(t, c.server.Config(), o)
		defer cl.Close()
		all.Go(func() {
			for range 15 {
				cm := configMap("shared")
				err := client.Modify(c.ctx, cl, cm, increment)
				switch {
				case err == nil:
					readsOwnWrite(c.ctx, t, cl, cm)
				case !errors.Is(err, call.ErrOutcomeUnknown) && !errors.Is(err, client.ErrTooManyConflicts) &&
					!errors.Is(err, disturb.ErrLost):
					t.Errorf("FAIRLEAD_SEED=%d: %v", seed, err)
				}
				mu.Lock()
				if err == nil {
					counted++
				} else if errors.Is(err, call.ErrOutcomeUnknown) {
					inDoubt++
				}
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			log = append(log, d.log...)
		})
	}
	all.Wait()
	u, err := c.server.Object(configMaps, "a", "shared")
	if err != nil {
		t.Fatal(err)
	}
	data, _ := u.Object["data"].(map[string]any)
	n, _ := strconv.Atoi(fmt.Sprint(data["n"]))
	if n < counted || n > counted+inDoubt {
		t.Errorf("FAIRLEAD_SEED=%d: the number is %d after %d increments and %d in doubt\n%s", seed, n, counted, inDoubt,
			strings.Join(log, "\n"))
	}
	t.Logf("%d increments, %d in doubt", counted, inDoubt)
}

// readsOwnWrite checks C1: after a write, the next read shows that version or a newer one.
func readsOwnWrite(ctx context.Context, t *testing.T, cl *client.Client, written *corev1.ConfigMap) {
	got, err := client.Get[corev1.ConfigMap](ctx, cl, client.KeyOf(written))
	if errors.Is(err, disturb.ErrLost) { // a read of the server itself
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	have, _ := strconv.Atoi(got.ResourceVersion)
	if want, _ := strconv.Atoi(written.ResourceVersion); have < want {
		t.Errorf("version %d is read after a write of %d", have, want)
	}
}
