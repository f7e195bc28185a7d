// Package guard blocks outgoing connections to addresses that are not public, as a defense against server-side request
// forgery (SSRF). These are loopback, private and link-local networks, the metadata services of clouds, and every other
// non-public range. The guard checks the resolved address when the connection is made. Therefore neither DNS rebinding
// nor an unusual spelling of an address bypasses it.
//
//	g, err := guard.New("10.20.0.0/16", "payments.internal")
//	transport := &http.Transport{DialContext: g.DialContext}
//
// Invariants:
//   - An address is refused unless it is known to be public or is allowed. See Options for the precedence of the rules.
//   - An IPv6 address that embeds an IPv4 address (mapped, NAT64, 6to4, ISATAP) is judged by both.
//   - Every refusal is a *RefusedError and matches ErrRefused.
package guard
