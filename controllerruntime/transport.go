package controllerruntime

import (
	"net/http"
	"reflect"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
)

// transportOf returns the transport of an HTTP client.
func transportOf(c *http.Client) http.RoundTripper {
	if c.Transport == nil {
		return http.DefaultTransport
	}
	return c.Transport
}

// atStart is how many requests stores may make at once: a cache of many namespaces begins with one for each, which the
// server's own priority and fairness is to slow down, and nobody else.
const atStart = 10_000

// watchClient returns a client for stores, with cfg; if c is another HTTP client than cfg makes, with the transport of
// that one, through which the informers of controller-runtime would go.
func watchClient(cfg *rest.Config, c *http.Client) (*source.Client, error) {
	made, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	options := source.ClientOptions{Limiter: source.NewLimiter(0, atStart)}
	if !alike(transportOf(made), transportOf(c)) {
		options.Transport = transportOf(c)
	}
	return source.NewClient(cfg, options)
}

// alike says whether two transports are made of the same wrappers around one that they have in common.
func alike(a, b http.RoundTripper) bool {
	for {
		if reflect.TypeOf(a) != reflect.TypeOf(b) {
			return false
		}
		beneathA, wrapsA := a.(utilnet.RoundTripperWrapper)
		beneathB, wrapsB := b.(utilnet.RoundTripperWrapper)
		if !wrapsA || !wrapsB {
			return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
		}
		a, b = beneathA.WrappedRoundTripper(), beneathB.WrappedRoundTripper()
	}
}
