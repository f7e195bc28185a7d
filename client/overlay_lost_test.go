package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// The response to an executed write is lost. The caller gets the error, and reads show the write.
func TestOverlayLostAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		verb, want string
		do         func(context.Context, configMapsOf) error
	}{
		{"create", "1", func(ctx context.Context, cms configMapsOf) error {
			_, err := cms.Create(ctx, configMap("new", "k", "1"), metav1.CreateOptions{})
			return err
		}},
		{"update", "2", func(ctx context.Context, cms configMapsOf) error {
			_, err := cms.Update(ctx, configMap("web", "k", "2"), metav1.UpdateOptions{})
			return err
		}},
		{"patch", "3", func(ctx context.Context, cms configMapsOf) error {
			_, err := cms.Patch(ctx, "web", types.MergePatchType, []byte(`{"data":{"k":"3"}}`), metav1.PatchOptions{})
			return err
		}},
		{"delete", "nothing", func(ctx context.Context, cms configMapsOf) error {
			return cms.Delete(ctx, "web", metav1.DeleteOptions{})
		}},
		{"deletecollection", "nothing", func(ctx context.Context, cms configMapsOf) error {
			return cms.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "!absent"})
		}},
	} {
		for fault, how := range map[string][]apiserver.Fault{
			"no response": {apiserver.DropAfter()}, "half an answer": {apiserver.Cut(10)},
			"only its head": {apiserver.Cut(0)},
		} {
			t.Run(tc.verb+", "+fault, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
					defer c.close()
					c.seen(configMaps, c.put(foreign("web", "k", "0")))
					c.holdWatches()
					c.server.On(apiserver.Match{Verb: tc.verb, Times: 1}, how...)
					if err := tc.do(c.ctx, c.configMaps()); err == nil {
						t.Fatal("no response was lost")
					}
					name := "web"
					if tc.verb == "create" {
						name = "new"
					}
					if got := c.shown(name); got != tc.want {
						t.Errorf("%q is shown", got)
					}
					if stats := c.cache.Lookup(configMaps)[0].OverlayStats(); len(stats.Overdue) > 0 {
						t.Errorf("the write is settled, but in doubt: %+v", stats)
					}
				})
			})
		}
	}
}

// A request is abandoned in flight, so there is no time to ask for its outcome, and readers ask. A request that was
// never sent leaves no doubt.
func TestOverlayGivenUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		match  apiserver.Match
		do     func(context.Context, configMapsOf) error
	}{
		{"an update", apiserver.Match{Verb: "update"}, func(ctx context.Context, cms configMapsOf) error {
			_, err := cms.Update(ctx, configMap("web", "k", "2"), metav1.UpdateOptions{})
			return err
		}},
		{"a delete of many", apiserver.Match{Verb: "deletecollection"}, func(
			ctx context.Context, cms configMapsOf,
		) error {
			return cms.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
				defer c.close()
				c.seen(configMaps, c.put(foreign("web", "k", "1")))
				c.holdWatches()
				gate := apiserver.NewGate()
				defer gate.Open()
				c.server.On(tc.match, apiserver.HoldResponse(gate))
				ctx, cancel := context.WithTimeout(c.ctx, time.Second)
				defer cancel()
				began := time.Now()
				if err := tc.do(ctx, c.configMaps()); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("the request took %v", took)
				}
				st := c.cache.Lookup(configMaps)[0]
				if !st.Overdue(key("web")) {
					t.Error("readers rely on the store")
				}
				got, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
				if err == nil && got.Data["k"] != "2" || err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("%v is read (%v)", got, err)
				}
				if err := st.Settle(c.ctx, key("web"), ""); err != nil || st.Overdue(key("web")) {
					t.Errorf("in doubt after the server was asked: %v", err)
				}
			})
		})
	}
	t.Run("the server is down", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
			defer c.close()
			c.seen(configMaps, c.put(foreign("web", "k", "1")))
			c.server.Down()
			if _, err := c.configMaps().Update(c.ctx, configMap("web", "k", "2"), metav1.UpdateOptions{}); err == nil {
				t.Fatal("the request succeeded")
			}
			if stats := c.cache.Lookup(configMaps)[0].OverlayStats(); stats.Entries != 0 {
				t.Errorf("a request that was not sent is in doubt: %+v", stats)
			}
		})
	})
}

// A write of a Client that cannot be repeated, and may have been executed, also shows its outcome.
func TestClientOutcomeUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		c.seen(configMaps, c.put(foreign("web", "k", "1")))
		c.holdWatches()
		c.server.On(apiserver.Match{Verb: "patch", Times: 1}, apiserver.DropAfter())
		patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/data/k","value":"2"}]`))
		if err := c.client.Patch(c.ctx, configMap("web"), patch); !errors.Is(err, call.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		if got := c.shown("web"); got != "2" {
			t.Errorf("%q is shown", got)
		}
	})
}

// After a delete of many, the store is updated as a whole, or all objects are in doubt.
func TestOverlayManyDeleted(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(map[bool]string{false: "the watch works", true: "the watch is behind"}[held], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
				defer c.close()
				const many = 100
				for i := range many {
					c.seen(configMaps, c.put(foreign(fmt.Sprint("web-", i))))
				}
				if held {
					c.holdWatches()
				}
				st, asks := c.cache.Lookup(configMaps)[0], c.requests("list")
				err := c.configMaps().DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if n := c.requests("list") - asks; n > 10 {
					t.Errorf("%d requests to the server", n)
				}
				if got, overdue := st.Len(), len(st.OverlayStats().Overdue); got != overdue || held != (overdue == many) {
					t.Errorf("%d are shown, %d of them in doubt", got, overdue)
				}
			})
		})
	}
}

// The server reports an own object absent before the watch has delivered its creation. The late creation event does not
// show it.
func TestOverlayDeletedBehindTheWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		cms := c.configMaps()
		if _, err := cms.Create(c.ctx, configMap("web", "k", "1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.server.On(apiserver.Match{Verb: "delete", Times: 1}, apiserver.DropAfter())
		if err := cms.Delete(c.ctx, "web", metav1.DeleteOptions{}); err == nil || c.shown("web") != "nothing" {
			t.Fatalf("%q is shown, %v", c.shown("web"), err)
		}
		if err := c.cache.Lookup(configMaps)[0].Settle(c.ctx, key("web"), ""); err != nil { // a second time changes nothing
			t.Fatal(err)
		}
		hold.Allow(1)
		synctest.Wait()
		if got := c.shown("web"); got != "nothing" {
			t.Errorf("%q is shown again", got)
		}
		hold.Release()
		synctest.Wait()
		if stats := c.cache.Lookup(configMaps)[0].OverlayStats(); c.shown("web") != "nothing" || stats.Entries != 0 {
			t.Errorf("at rest %q is shown, the overlay is %+v", c.shown("web"), stats)
		}
	})
}
