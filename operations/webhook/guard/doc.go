// Package guard keeps outgoing connections away from addresses that only insiders should reach (server-side request
// forgery, SSRF): loopback, private and link-local networks, the metadata services of clouds, and every other range
// that is not public. It decides at connect time, on the address that is about to be connected to, so that neither a
// name that resolves differently the second time (DNS rebinding) nor an unusual spelling of an address gets around it.
//
//	g, err := guard.New("10.20.0.0/16", "payments.internal")
//	transport := &http.Transport{DialContext: g.DialContext}
//
// Invariants:
//   - An address is refused unless it is public or allowed; what is not known to be public is refused. See Options for
//     what beats what.
//   - An IPv6 address that embeds an IPv4 address (mapped, NAT64, 6to4, ISATAP) is judged by both.
//   - Every refusal is a *RefusedError and matches ErrRefused.
package guard
