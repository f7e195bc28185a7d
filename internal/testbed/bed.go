package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// T is the common part of testing.T and rapid.T.
type T interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// Server starts an in-memory server. Call it inside the bubble of a synctest.
func Server(t T, o apiserver.Options) *apiserver.Server {
	t.Helper()
	o.Pipe = true
	if o.Resources == nil {
		o.Resources = Resources()
	}
	s, err := apiserver.New(o)
	if err != nil {
		t.Fatalf("cannot start the server: %v", err)
	}
	return s
}

// Mapper returns a RESTMapper for the resources of a server.
func Mapper(resources []apiserver.Resource) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, r := range resources {
		scope := meta.RESTScopeRoot
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		m.AddSpecific(r.GVK(), r.GVR(), r.GVR(), scope)
	}
	return m
}

// Host is a process: a cache, a client, and the functions that Add has added.
type Host struct {
	t      T
	cache  *store.Cache
	client *client.Client
	calls  *call.Client
	reg    *prometheus.Registry

	mu      sync.Mutex
	added   []func(context.Context) error
	stop    context.CancelFunc
	stopped func() // stops the cache
	running sync.WaitGroup
	errs    []error
}

// NewHost returns a process that uses the cluster of cfg.
func NewHost(t T, cfg *rest.Config, mapper meta.RESTMapper, sources ...source.Option) *Host {
	t.Helper()
	return NewHostWith(t, cfg, mapper, call.Policy{}, sources...)
}

// NewHostWith is like NewHost with a policy for the requests of the client.
func NewHostWith(t T, cfg *rest.Config, mapper meta.RESTMapper, policy call.Policy, sources ...source.Option) *Host {
	t.Helper()
	h := &Host{t: t, reg: prometheus.NewRegistry()}
	s := Scheme()
	var err error
	if h.cache, err = store.NewCache(store.CacheOptions{
		Config: cfg, Scheme: s, Mapper: mapper, Source: sources, Store: store.Options{DetectMutation: true},
	}); err != nil {
		t.Fatalf("cannot make a cache: %v", err)
	}
	if h.calls, err = call.New(call.Options{Config: cfg}); err != nil {
		t.Fatalf("cannot make a client: %v", err)
	}
	if h.client, err = client.New(client.Options{
		Config: cfg, Call: h.calls, Cache: h.cache, Scheme: s, Mapper: mapper, Policy: policy,
	}); err != nil {
		t.Fatalf("cannot make a client: %v", err)
	}
	return h
}

// Add implements reconcile.Host.
func (h *Host) Add(_ string, fn func(context.Context) error) { h.added = append(h.added, fn) }

// Cache implements reconcile.Host.
func (h *Host) Cache() *store.Cache { return h.cache }

// Client implements reconcile.Host.
func (h *Host) Client() *client.Client { return h.client }

// Registry implements reconcile.Host.
func (h *Host) Registry() *prometheus.Registry { return h.reg }

// Start runs the process until Stop.
func (h *Host) Start(ctx context.Context) {
	ctx, h.stop = context.WithCancel(ctx)
	cacheCtx, stopCache := context.WithCancel(context.WithoutCancel(ctx))
	var cache sync.WaitGroup
	cache.Go(func() { _ = h.cache.Run(cacheCtx) })
	h.stopped = func() { stopCache(); cache.Wait(); h.client.Close(); h.calls.Close() }
	for _, fn := range h.added {
		h.running.Go(func() {
			if err := fn(ctx); err != nil {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.errs = append(h.errs, err)
			}
		})
	}
}

// Stop ends the process and returns the joined errors of its functions.
func (h *Host) Stop() error {
	h.stop()
	h.running.Wait()
	h.stopped()
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.errs...)
}

// Watch watches a kind in the process and waits for its first list.
func (h *Host) Watch(gvk schema.GroupVersionKind, opts ...source.Option) *store.Handle {
	h.t.Helper()
	st, err := h.cache.Acquire(gvk, opts...)
	if err != nil {
		h.t.Fatalf("cannot watch %s: %v", gvk, err)
	}
	<-st.Synced()
	return st
}

// Put stores an object directly on the server, without a client request.
func Put(t T, s *apiserver.Server, obj runtime.Object) *unstructured.Unstructured {
	t.Helper()
	u, err := s.Put(obj)
	if err != nil {
		t.Fatalf("cannot put: %v", err)
	}
	return u
}

// Change changes a stored object directly on the server, without a client request.
func Change(
	t T, s *apiserver.Server, gvr schema.GroupVersionResource, k store.Key, fn func(u *unstructured.Unstructured),
) *unstructured.Unstructured {
	t.Helper()
	u, err := s.Object(gvr, k.Namespace, k.Name)
	if err != nil {
		t.Fatalf("cannot read %s: %v", k, err)
	}
	fn(u)
	return Put(t, s, u)
}

// Stored returns the gateway that the server has, or nil.
func Stored(s *apiserver.Server, k store.Key) *Gateway {
	u, err := s.Object(Gateways, k.Namespace, k.Name)
	if err != nil {
		return nil
	}
	raw, _ := json.Marshal(u)
	g := &Gateway{}
	if err := json.Unmarshal(raw, g); err != nil {
		panic(fmt.Sprintf("cannot decode: %v", err))
	}
	return g
}

// Settle advances the fake clock of a bubble by d and waits until all its goroutines are blocked.
func Settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
