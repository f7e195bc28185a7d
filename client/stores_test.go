package client_test

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

// A client can read from stores outside a cache, and overlays its writes on them.
func TestStores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		own, err := client.New(client.Options{Call: c.calls, Mapper: c.client.Mapper(), Stores: c.cache.Stores(configMaps)})
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		size := 0
		cm := configMap("web", "n", "1")
		if err := own.Create(c.ctx, cm, writeoption.Answered(func(raw []byte) { size = len(raw) })); err != nil {
			t.Fatal(err)
		}
		if size == 0 {
			t.Error("the response has no size")
		}
		before := c.requests("get")
		got, err := client.Get[corev1.ConfigMap](c.ctx, own, key("web"))
		if err != nil || got.ResourceVersion != cm.ResourceVersion {
			t.Errorf("wrote version %s, and read %v, %v", cm.ResourceVersion, got, err)
		}
		if n := c.requests("get") - before; n != 0 {
			t.Errorf("%d requests to read what the store has", n)
		}
		if err := own.WaitForCache(c.ctx); err != nil {
			t.Error(err)
		}
	})
}
