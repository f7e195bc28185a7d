package client

import (
	"net/http"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// NewMapper returns a mapper that asks the server for its resources when they are needed first, and again for what it does not know
// then: a custom resource may have been installed meanwhile, by the program itself even. For what the server does not know
// either it is asked ten times in a row, and once a second later. It is safe for concurrent use.
func NewMapper(cfg *rest.Config) (meta.RESTMapper, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return single{next} })
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	// The cache in memory calls itself fresh for ever once it was filled, so that the mapper would never ask again.
	return &mapper{restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d)), rate.NewLimiter(1, 10)}, nil
}

// single closes the connection of each request: discovery is rare, and nobody would close what it leaves idle.
type single struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (s single) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return s.next.RoundTrip(r)
}

// WrappedRoundTripper gives what is wrapped to those who look for the connections.
func (s single) WrappedRoundTripper() http.RoundTripper { return s.next }

type mapper struct {
	meta.ResettableRESTMapper
	again *rate.Limiter
}

// retry asks again if the answer is that there is no such thing.
func retry[T any](m *mapper, ask func() (T, error)) (T, error) {
	found, err := ask()
	if err != nil && meta.IsNoMatchError(err) && m.again.Allow() {
		m.Reset()
		return ask()
	}
	return found, err
}

func (m *mapper) KindFor(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return retry(m, func() (schema.GroupVersionKind, error) { return m.ResettableRESTMapper.KindFor(r) })
}

func (m *mapper) KindsFor(r schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return retry(m, func() ([]schema.GroupVersionKind, error) { return m.ResettableRESTMapper.KindsFor(r) })
}

func (m *mapper) ResourceFor(r schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return retry(m, func() (schema.GroupVersionResource, error) { return m.ResettableRESTMapper.ResourceFor(r) })
}

func (m *mapper) ResourcesFor(r schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return retry(m, func() ([]schema.GroupVersionResource, error) { return m.ResettableRESTMapper.ResourcesFor(r) })
}

func (m *mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return retry(m, func() (*meta.RESTMapping, error) { return m.ResettableRESTMapper.RESTMapping(gk, versions...) })
}

func (m *mapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return retry(m, func() ([]*meta.RESTMapping, error) { return m.ResettableRESTMapper.RESTMappings(gk, versions...) })
}
