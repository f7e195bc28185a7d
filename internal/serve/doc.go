// Package serve runs HTTP servers on listeners that untrusted clients can reach.
//
// A [Server] bounds the number of connections and shares them between clients. At the bound it closes a connection that
// waits for a request, of the client with the most connections. Timeouts end connections that are silent or slow. They
// can be shorter for a client that has not authenticated ([Known]). TLS handshakes use at most half of the processors,
// and clients take turns. A [Certificate] is read again when its files change.
//
// A client is an IPv4 address, or the first 64 bits of an IPv6 address, which is the usual allocation for one machine.
package serve

import (
	"net/netip"
)

// Client returns the client of a remote address. Behind a proxy this is the proxy.
func Client(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			return prefix.Addr().String()
		}
	}
	return addr.String()
}
