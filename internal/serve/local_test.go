package serve

import (
	"net/http/httptest"
	"testing"
)

func TestIsLocal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, from, host string
		want               bool
	}{
		{"a program of this machine", "127.0.0.1:5000", "127.0.0.1:8080", true},
		{"by name", "127.0.0.1:5000", "LocalHost:8080", true},
		{"by the other loopback", "[::1]:5000", "[::1]:8080", true},
		{"an IPv4 address in IPv6", "[::ffff:127.0.0.1]:5000", "localhost", true},
		{"another machine", "10.0.0.7:5000", "127.0.0.1:8080", false},
		{"a name that resolves to loopback", "127.0.0.1:5000", "evil.example:8080", false},
		{"a name with an address as its prefix", "127.0.0.1:5000", "127.0.0.1.evil.example", false},
		{"a request through a proxy on this machine", "127.0.0.1:5000", "operator.prod.svc", false},
		{"an invalid address", "@", "localhost", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.RemoteAddr, r.Host = tc.from, tc.host
		if got := IsLocal(r); got != tc.want {
			t.Errorf("%s (%s to %s): %v", tc.reason, tc.from, tc.host, got)
		}
	}
}
