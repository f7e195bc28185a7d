package controllerruntime

import (
	"net/http"
	"reflect"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/connection"
)

// transportOf returns the transport of an HTTP client, without what NewCache has put around it.
func transportOf(c *http.Client) http.RoundTripper {
	switch t := c.Transport.(type) {
	case nil:
		return http.DefaultTransport
	case *overlaid:
		return t.plain
	default:
		return t
	}
}

// atStart bounds the concurrent requests of stores. A cache of many namespaces starts with one request for each
// namespace; only the server's priority and fairness should limit them.
const atStart = 10_000

// watchConnection returns a connection for stores with cfg. If c differs from the HTTP client that cfg yields, it uses
// the transport of c, as the informers of controller-runtime would.
func watchConnection(cfg *rest.Config, c *http.Client) (*connection.Conn, error) {
	made, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	options := connection.Options{StoresBurst: atStart}
	if !alike(transportOf(made), transportOf(c)) {
		options.HTTPClient = &http.Client{Transport: transportOf(c)}
		cfg = rest.CopyConfig(cfg)
		cfg.BearerTokenFile = "" // the transport of c authenticates
	}
	return connection.New(cfg, options)
}

// alike reports whether two transports consist of the same types of wrappers around a common transport.
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
