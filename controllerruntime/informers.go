package controllerruntime

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	fairleadcache "github.com/fairlead-io/fairlead/cache"
)

// Informers makes informers over stores for programs that use client-go alone. [Use] has a factory of typed informers
// hand them out. It is safe for concurrent use.
type Informers struct{ stores *stores }

// NewInformers returns informers of the cluster of cfg. types knows the Go types; nil: those of client-go. Nothing is
// watched before Run, unless the options have Stores, which somebody else runs.
func (o Options) NewInformers(cfg *rest.Config, types *runtime.Scheme) (*Informers, error) {
	if types == nil {
		types = scheme.Scheme
	}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make informers: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, c)
	if err != nil {
		return nil, fmt.Errorf("cannot make informers: %w", err)
	}
	s, err := o.newStores(cfg, c, types, mapper)
	if err != nil {
		return nil, fmt.Errorf("cannot make informers: %w", err)
	}
	return &Informers{s}, nil
}

// NewInformers is the method of that name with the defaults of [Options].
func NewInformers(cfg *rest.Config, types *runtime.Scheme) (*Informers, error) {
	return Options{}.NewInformers(cfg, types)
}

// Run runs the stores until ctx is done. Stop the informers before; an error is that of cache.Cache.Run.
func (f *Informers) Run(ctx context.Context) error {
	return f.stores.runAround(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}

// Stores returns the stores beneath.
func (f *Informers) Stores() *fairleadcache.Cache { return f.stores.Cache }

// Overlay lays the answers to the writes that pass next over the stores, so that the informers show them at once. Wrap
// the transport of a client with it:
//
//	cfg.Wrap(informers.Overlay)
func (f *Informers) Overlay(next http.RoundTripper) http.RoundTripper {
	return f.stores.opt.overlay(next, f.stores.Cache)
}

// Informer returns a new informer of objects such as obj: of its Go type, or unstructured.Unstructured or
// metav1.PartialObjectMetadata with apiVersion and kind. Options choose namespaces and selectors. Informers of the same
// objects share a store. Who makes the informer runs it.
func (f *Informers) Informer(
	obj runtime.Object, resync time.Duration, options ...fairleadcache.Option,
) (toolscache.SharedIndexInformer, error) {
	gvk, err := apiutil.GVKForObject(obj, f.stores.scheme)
	if err != nil {
		return nil, fmt.Errorf("cannot make informer: %w", err)
	}
	byNamespace := toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}
	return newInformer(obj, resync, byNamespace, f.stores.opt.holdWrites(), f.stores.opener(gvk, obj, options)), nil
}

// Use has a factory of typed informers hand out ours for the types of objs: its informers and listers read the stores.
// It is to be called before the factory is asked for any of them. The factory may be informers.SharedInformerFactory of
// client-go, or any that informer-gen has generated; its namespace and its tweaks do not apply, options choose instead.
func Use[C any, F ~func(C, time.Duration) toolscache.SharedIndexInformer](
	f *Informers, factory interface {
		InformerFor(obj runtime.Object, make F) toolscache.SharedIndexInformer
	}, objs []runtime.Object, options ...fairleadcache.Option,
) error {
	for _, obj := range objs {
		if _, err := f.Informer(obj, 0, options...); err != nil {
			return err
		}
		factory.InformerFor(obj, func(_ C, resync time.Duration) toolscache.SharedIndexInformer {
			in, _ := f.Informer(obj, resync, options...) // it was possible just now
			return in
		})
	}
	return nil
}
