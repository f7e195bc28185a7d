package serve

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// IsLocal tells whether a request comes from this machine and was meant for it. A page of another site that a browser
// shows here has the name of that site as its host, also where the name resolves to loopback (DNS rebinding).
func IsLocal(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback() && IsLocalHost(r.Host)
}

// IsLocalHost tells whether a host, with or without a port, is localhost or a loopback address.
func IsLocalHost(host string) bool {
	host = Hostname(host)
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Hostname is a host without its port, in lower case.
func Hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
