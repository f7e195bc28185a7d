// Package serve answers HTTP requests on a listener that strangers can reach.
//
// A [Server] bounds how many connections there are at a time, and shares them between clients when there are no more:
// those that wait for a request are closed first, of the client that has the most connections. Who sends nothing, or
// sends and reads slowly, is given up after a time; a client that has not shown who it is ([Known]) after a short one,
// if the options say so. TLS handshakes take half of the processors, in turns by client. A [Certificate] is read from
// files again when they have changed.
//
// A client is an IPv4 address, or the first 64 bits of an IPv6 address, which is what one machine is usually given.
package serve

import (
	"net/netip"
)

// Client returns the client of a remote address, as the network has it. Behind a proxy that is the proxy.
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
