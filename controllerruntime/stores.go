package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// stores are the stores of one cache or one Informers.
type stores struct {
	*store.Cache
	opt    Options
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	conn   *connection.Conn // nil: the stores belong to another owner
	base   string           // path of the server's URL
}

// newStores returns stores that watch through c, unless the options contain stores.
func (o Options) newStores(
	cfg *rest.Config, c *http.Client, scheme *runtime.Scheme, mapper meta.RESTMapper,
) (*stores, error) {
	if err := errors.Join(o.check(), o.checkDrop(scheme)); err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot tell the URL of the server: %w", err)
	}
	s := &stores{Cache: o.Stores, opt: o, scheme: scheme, mapper: mapper, base: server.Path}
	if s.Cache != nil {
		return s, nil
	}
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot save stores in Options.Dir: %w", err)
		}
	}
	if s.conn, err = watchConnection(cfg, c); err != nil {
		return nil, err
	}
	s.Cache, err = store.NewCache(store.CacheOptions{
		Config: cfg, Connection: s.conn, Scheme: scheme, Mapper: mapper, Dir: o.Dir, Logger: o.Logger,
		Linger: -1, // a removed informer stops at once
	})
	return s, err
}

// close closes the connection of stores that will not run.
func (s *stores) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}

// runAround runs the stores while work runs, unless another owner runs them. It stops the stores after work returns.
// When the stores fail, it cancels the context of work.
func (s *stores) runAround(ctx context.Context, work func(context.Context) error) error {
	for _, kind := range s.unknownKinds() {
		klog.FromContext(ctx).Info("fields are to be dropped of a kind that neither the scheme nor the server knows; "+
			"if it is misspelled they are kept", "kind", kind.String())
	}
	if s.opt.Stores != nil {
		return work(ctx)
	}
	if s.opt.Registry != nil {
		metrics := store.Collector(func() []*store.Store { return s.Stores(schema.GroupVersionResource{}) })
		if err := s.opt.Registry.Register(metrics); err != nil {
			if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
				err = fmt.Errorf("another cache is measured by it; share Options.Stores, or give the other cache none: %w", err)
			}
			return fmt.Errorf("cannot measure stores by Options.Registry: %w", err)
		}
		defer s.opt.Registry.Unregister(metrics)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx)) // the stores outlive the informers
	defer stop()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- s.Run(watching)
	}()
	err := work(running)
	stop()
	defer s.conn.Close()
	return errors.Join(err, <-ended)
}

// unknownKinds returns the kinds with dropped fields that neither the scheme nor the server knows. It is not an error,
// since the server may serve the kind later.
func (s *stores) unknownKinds() (kinds []schema.GroupKind) {
	for _, kind := range slices.AppendSeq(slices.Clone(s.opt.DropManagedFields), maps.Keys(s.opt.Drop)) {
		if kind.Empty() || len(s.scheme.VersionsForGroupKind(kind)) > 0 || slices.Contains(kinds, kind) {
			continue
		}
		if _, err := s.mapper.RESTMapping(kind); meta.IsNoMatchError(err) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// opener returns a function that opens the store of a kind for objects of the type of example.
func (s *stores) opener(
	gvk schema.GroupVersionKind, example runtime.Object, options []source.Option,
) func(toolscache.TransformFunc) (*store.Handle, error) {
	return func(transform toolscache.TransformFunc) (*store.Handle, error) {
		m, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return nil, err
		}
		req := store.Request{
			Kind: gvk, Resource: m.Resource, Namespaced: m.Scope.Name() == meta.RESTScopeNameNamespace,
			Options: options, Content: s.opt.content(gvk.GroupKind()),
		}
		req.Content.Transform = transform
		switch example.(type) {
		case runtime.Unstructured:
			req.Unstructured = true
		case *metav1.PartialObjectMetadata:
			req.Content.Metadata = true
		}
		return s.Open(req)
	}
}
