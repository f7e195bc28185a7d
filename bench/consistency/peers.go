package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcluster "sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// peer is a client with a cache of the ConfigMaps of one namespace.
type peer struct {
	create, update func(context.Context, *corev1.ConfigMap) error
	// read returns the resourceVersion of an object in the cache.
	read func(context.Context, client.Key) (string, error)
	stop func()
}

// fairleadPeer returns our client.
func fairleadPeer(cfg *rest.Config, namespace string) (*peer, error) {
	cached, err := store.NewCache(store.CacheOptions{Config: cfg, Scheme: scheme.Scheme, Mapper: mapper()})
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Options{Config: cfg, Cache: cached, Mapper: mapper()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cached.Run(ctx) }()
	h, err := store.AcquireFor[corev1.ConfigMap](cached, source.Namespaces(namespace))
	if err == nil {
		<-h.Synced()
	}
	return &peer{
		create: func(ctx context.Context, cm *corev1.ConfigMap) error { return c.Create(ctx, cm) },
		update: func(ctx context.Context, cm *corev1.ConfigMap) error { return c.Update(ctx, cm) },
		read: func(ctx context.Context, key client.Key) (string, error) {
			cm, err := client.Get[corev1.ConfigMap](ctx, c, key)
			if err != nil {
				return "", err
			}
			return cm.ResourceVersion, nil
		},
		stop: func() { c.Close(); h.Release(); cancel(); <-done },
	}, err
}

// adapterPeer returns the client of a controller-runtime cluster on our stores.
func adapterPeer(cfg *rest.Config, namespace string) (*peer, error) {
	return controllerRuntimePeer(cfg, namespace, false, func(c *ctrlcluster.Options) {
		c.NewCache, c.NewClient = controllerruntime.NewCache, controllerruntime.NewClient
	})
}

// controllerRuntimePeer returns the client of a controller-runtime cluster, which is also the client of a manager.
// The options change its defaults.
func controllerRuntimePeer(
	cfg *rest.Config, namespace string, readYourWrites bool, options ...ctrlcluster.Option,
) (*peer, error) {
	o := ctrlclient.Options{Cache: &ctrlclient.CacheOptions{EnableReadYourWritesConsistency: &readYourWrites}}
	cl, err := ctrlcluster.New(cfg, append(options, func(c *ctrlcluster.Options) {
		c.Scheme, c.Client = scheme.Scheme, o
		c.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
	})...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := cl.GetCache().GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false)); err != nil {
		cancel()
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cl.Start(ctx) }()
	if !cl.GetCache().WaitForCacheSync(ctx) {
		cancel()
		return nil, fmt.Errorf("the cache is not synced: %w", <-done)
	}
	c := cl.GetClient()
	return &peer{
		create: func(ctx context.Context, cm *corev1.ConfigMap) error { return c.Create(ctx, cm) },
		update: func(ctx context.Context, cm *corev1.ConfigMap) error { return c.Update(ctx, cm) },
		read: func(ctx context.Context, key client.Key) (string, error) {
			var cm corev1.ConfigMap
			err := c.Get(ctx, ctrlclient.ObjectKey{Namespace: key.Namespace, Name: key.Name}, &cm)
			return cm.ResourceVersion, err
		},
		stop: func() { cancel(); <-done },
	}, nil
}
