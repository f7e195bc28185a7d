package serve

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// IsLocal reports whether a request comes from this machine and names it as the host. A page of another site has that
// site as its host, even if the name resolves to loopback (DNS rebinding).
func IsLocal(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback() && IsLocalHost(r.Host)
}

// IsLocalHost reports whether host, with or without a port, is localhost or a loopback address.
func IsLocalHost(host string) bool {
	host = Hostname(host)
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Hostname returns host in lower case without its port.
func Hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
