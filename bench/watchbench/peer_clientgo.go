package main

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

type clientGoMode int

const (
	typed clientGoMode = iota
	dynamicMode
	metadataOnly
)

// clientGo is a SharedIndexInformer as the factories of client-go create it.
type clientGo struct {
	mode     clientGoMode
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc
	done     chan struct{}
}

func (c *clientGo) start(ctx context.Context, t target, handler func(event)) error {
	cfg := rest.CopyConfig(t.cfg)
	gvr := podsResource
	if t.corpus == "widgets" {
		gvr = widgetsResource
	}
	switch c.mode {
	case typed:
		cfg.ContentType = "application/vnd.kubernetes.protobuf"
		cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		c.informer = informers.NewSharedInformerFactoryWithOptions(client, 0,
			informers.WithTweakListOptions(paging(t))).Core().V1().Pods().Informer()
	case dynamicMode:
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		c.informer = dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, metav1.NamespaceAll,
			paging(t)).ForResource(gvr).Informer()
	default:
		client, err := metadata.NewForConfig(cfg)
		if err != nil {
			return err
		}
		c.informer = metadatainformer.NewSharedInformerFactory(client, 0).ForResource(gvr).Informer()
	}
	return c.run(ctx, handler)
}

// paging makes a reflector list in pages. With the default resource version 0 the server ignores the limit.
func paging(t target) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		if t.paged && o.ResourceVersion == "0" {
			o.ResourceVersion, o.Limit = "", 500
		}
	}
}

func (c *clientGo) run(ctx context.Context, handler func(event)) error {
	if err := c.informer.SetTransform(withoutManagedFields); err != nil {
		return err
	}
	if err := c.informer.AddIndexers(bucketIndexer()); err != nil {
		return err
	}
	if _, err := c.informer.AddEventHandler(eventHandler(handler)); err != nil {
		return err
	}
	ctx, c.cancel = context.WithCancel(ctx)
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		c.informer.RunWithContext(ctx)
	}()
	for !c.informer.HasSynced() { // WaitForCacheSync polls every 100 ms
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// withoutManagedFields is the usual transform of an informer. Fairlead does not keep managed fields either.
func withoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func bucketIndexer() cache.Indexers {
	return cache.Indexers{"bucket": func(obj any) ([]string, error) {
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		return []string{bucketOf(m.GetName())}, nil
	}}
}

func eventHandler(handler func(event)) cache.ResourceEventHandler {
	tell := func(obj any, initial bool) {
		if m, ok := obj.(metav1.Object); ok {
			handler(event{m.GetResourceVersion(), initial})
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { tell(obj, initial) },
		UpdateFunc: func(_, obj any) { touch(obj); tell(obj, false) },
	}
}

func touch(obj any) {
	switch o := obj.(type) {
	case *corev1.Pod:
		sinkhole.Add(int64(len(o.Spec.Containers) + len(o.Status.Phase)))
	case *widget:
		sinkhole.Add(int64(o.Spec.Replicas + len(o.Status.Phase)))
	}
}

func (c *clientGo) whole(bool) {}

func (c *clientGo) readAll() (n int) {
	for _, obj := range c.informer.GetStore().List() {
		touch(obj)
		n++
	}
	return n
}

func (c *clientGo) keys(n int) []key {
	var out []key
	for _, k := range c.informer.GetStore().ListKeys() {
		ns, name, err := cache.SplitMetaNamespaceKey(k)
		if err != nil || len(out) == n {
			break
		}
		out = append(out, key{ns, name})
	}
	return out
}

func (c *clientGo) get(k key) error {
	_, exists, err := c.informer.GetIndexer().GetByKey(k.namespace + "/" + k.name)
	if err == nil && !exists {
		err = errors.New("not found")
	}
	return err
}

func (c *clientGo) byIndex(value string) int {
	all, _ := c.informer.GetIndexer().ByIndex("bucket", value)
	return len(all)
}

func (c *clientGo) stop() {
	c.cancel()
	<-c.done
}
