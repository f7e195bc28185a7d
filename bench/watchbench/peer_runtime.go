package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"
)

// controllerRuntime is the cache of controller-runtime. It drops managed fields, as ours does, and otherwise has the
// defaults: readers get copies.
type controllerRuntime struct {
	unstructured bool
	defaults     bool               // keep managed fields
	shared       bool               // readers get no copies
	new          cache.NewCacheFunc // nil: cache.New of controller-runtime
	kind         schema.GroupVersionKind
	cache        cache.Cache
	informer     cache.Informer
	cancel       context.CancelFunc
	done         chan error
}

// manager returns a maker of peers with the defaults of a manager's cache, which keeps managed fields.
func manager(c controllerRuntime) func() peer {
	c.defaults = true
	return func() peer { return &c }
}

func (c *controllerRuntime) object() client.Object {
	switch {
	case c.unstructured:
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(c.kind)
		return u
	case c.kind == widgetKind:
		return &widget{}
	}
	return &corev1.Pod{}
}

func (c *controllerRuntime) list() client.ObjectList {
	switch {
	case c.unstructured:
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(c.kind.GroupVersion().WithKind(c.kind.Kind + "List"))
		return l
	case c.kind == widgetKind:
		return &widgetList{}
	}
	return &corev1.PodList{}
}

func (c *controllerRuntime) start(ctx context.Context, t target, handler func(event)) error {
	ctrllog.SetLogger(logr.Discard())
	c.kind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	if t.corpus == "widgets" {
		c.kind = widgetKind
	}
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		return err
	}
	known.AddKnownTypeWithName(widgetKind, &widget{})
	known.AddKnownTypeWithName(widgetKind.GroupVersion().WithKind("WidgetList"), &widgetList{})
	metav1.AddToGroupVersion(known, widgetKind.GroupVersion())
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{c.kind.GroupVersion()})
	mapper.Add(c.kind, meta.RESTScopeNamespace)
	o := cache.Options{Scheme: known, Mapper: mapper, DefaultUnsafeDisableDeepCopy: &c.shared}
	if !c.defaults {
		o.DefaultTransform = cache.TransformStripManagedFields()
	}
	if c.new == nil {
		c.new = cache.New
	}
	var err error
	if c.cache, err = c.new(t.cfg, o); err != nil {
		return err
	}
	ctx, c.cancel = context.WithCancel(ctx)
	if c.informer, err = c.cache.GetInformer(ctx, c.object(), cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	index := func(o client.Object) []string { return []string{bucketOf(o.GetName())} }
	if err := c.cache.IndexField(ctx, c.object(), "bucket", index); err != nil {
		return err
	}
	if _, err := c.informer.AddEventHandler(eventHandler(handler)); err != nil {
		return err
	}
	c.done = make(chan error, 1)
	go func() { c.done <- c.cache.Start(ctx) }()
	for !c.informer.HasSynced() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (c *controllerRuntime) whole(bool) {}

func (c *controllerRuntime) store() toolscache.SharedIndexInformer {
	return c.informer.(toolscache.SharedIndexInformer)
}

func (c *controllerRuntime) handlers(n int) (remove func(), err error) {
	var added []toolscache.ResourceEventHandlerRegistration
	remove = func() {
		for _, one := range added {
			_ = c.informer.RemoveEventHandler(one)
		}
	}
	for range n {
		one, err := c.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
		if err != nil {
			return remove, err
		}
		added = append(added, one)
	}
	for _, one := range added {
		for !one.HasSynced() {
			time.Sleep(time.Millisecond)
		}
	}
	return remove, nil
}

func (c *controllerRuntime) readAll() (n int) {
	for _, obj := range c.store().GetStore().List() {
		touch(obj)
		n++
	}
	return n
}

func (c *controllerRuntime) keys(n int) []key {
	return (&clientGo{informer: c.store()}).keys(n)
}

func (c *controllerRuntime) get(k key) error {
	return c.cache.Get(context.Background(), client.ObjectKey{Namespace: k.namespace, Name: k.name}, c.object())
}

func (c *controllerRuntime) byIndex(value string) int {
	list := c.list()
	_ = c.cache.List(context.Background(), list, client.MatchingFields{"bucket": value})
	return meta.LenList(list)
}

func (c *controllerRuntime) stop() {
	c.cancel()
	<-c.done
}
