package client_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/store"
)

// BenchmarkGet reads one pod from the store: shared, and as a copy.
func BenchmarkGet(b *testing.B) {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background())
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	cache, err := store.NewCache(store.CacheOptions{Config: server.Config(), Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		b.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- cache.Run(ctx) }()
	defer func() { stop(); <-stopped }()
	h, err := store.AcquireFor[corev1.Pod](cache)
	if err != nil {
		b.Fatal(err)
	}
	defer h.Release()
	<-h.Synced()
	c, err := client.New(client.Options{Config: server.Config(), Cache: cache, Mapper: mapper})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if err := c.Create(ctx, pod("web")); err != nil {
		b.Fatal(err)
	}
	if err := c.WaitForCache(ctx); err != nil {
		b.Fatal(err)
	}
	b.Run("shared", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := client.Get[corev1.Pod](ctx, c, key("web")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("copy", func(b *testing.B) {
		b.ReportAllocs()
		var p corev1.Pod
		for b.Loop() {
			if err := c.Get(ctx, key("web"), &p); err != nil {
				b.Fatal(err)
			}
		}
	})
}
