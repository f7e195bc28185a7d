package client_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/shard"
)

// TestReadsOfSlots: objects of held slots are read from the cache, also their absence. For other objects the server is
// asked, and an object of a lost slot never counts as deleted.
func TestReadsOfSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{server: apiserver.Options{ShardedListAndWatch: true}})
		defer c.close()
		layout := shard.Layout{Slots: 2}
		var ns [2]string
		for i := 0; ns[0] == "" || ns[1] == ""; i++ {
			name := fmt.Sprint("n", i)
			ns[layout.SlotOf(name, "")] = name
		}
		for _, n := range ns {
			c.put(labelled(n, "web", "app=web"))
		}
		share := source.NewSharding(layout)
		hold := func(slots ...int) {
			t.Helper()
			if err := share.Set(layout.Set(slots...)); err != nil {
				t.Fatal(err)
			}
			if err := share.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		hold(0)
		c.acquire(t, source.ShardWith(share))
		get := func(reason, namespace, name string, found bool, requests int) {
			t.Helper()
			before := c.requests("get")
			_, err := client.Get[corev1.ConfigMap](c.ctx, c.client, client.Key{Namespace: namespace, Name: name})
			if (err == nil) != found || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: error %v", reason, err)
			}
			if n := c.requests("get") - before; n != requests {
				t.Errorf("%s: %d requests, want %d", reason, n, requests)
			}
		}
		get("held", ns[0], "web", true, 0)
		get("held, and not there", ns[0], "none", false, 0)
		get("elsewhere", ns[1], "web", true, 1)
		get("elsewhere, and not there", ns[1], "none", false, 1)
		for _, tc := range []struct {
			reason   string
			opts     []client.ReadOption
			want     int
			requests int
		}{
			{"a namespace that is held", []client.ReadOption{client.InNamespace(ns[0])}, 1, 0},
			{"another namespace", []client.ReadOption{client.InNamespace(ns[1])}, 1, 1},
			{"all namespaces", nil, 2, 1},
		} {
			if names, requests, err := c.names(t, tc.opts...); err != nil || len(names) != tc.want || requests != tc.requests {
				t.Errorf("%s: %d objects, %d requests, %v", tc.reason, len(names), requests, err)
			}
		}
		for _, err := range client.List[corev1.ConfigMap](c.ctx, c.client, client.Index("colour", "red")) {
			if !errors.Is(err, client.ErrNotWatched) {
				t.Errorf("an index of some slots: %v", err)
			}
		}
		hold(1)
		get("left", ns[0], "web", true, 1)
		get("come", ns[1], "web", true, 0)
		cm := labelled(ns[0], "mine", "app=web")
		if err := c.client.Create(c.ctx, cm); err != nil {
			t.Fatal(err)
		}
		get("an own write elsewhere", ns[0], "mine", true, 1)
		cm = labelled(ns[1], "mine", "app=web")
		if err := c.client.Create(c.ctx, cm); err != nil {
			t.Fatal(err)
		}
		get("an own write here", ns[1], "mine", true, 0)
		hold(0, 1)
		get("own, all are held", ns[0], "mine", true, 0)
		if names, requests, err := c.names(t); err != nil || len(names) != 4 || requests != 0 {
			t.Errorf("all slots are held: %v, %d requests, %v", names, requests, err)
		}
	})
}
