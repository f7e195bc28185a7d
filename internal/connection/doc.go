// Package connection holds the connection of a process to one API server, for all requests about objects.
//
// A [Conn] owns the address, the transport, the credentials and the [Limiter]. Lists, watches, calls and discovery
// share it. Lists and watches have a transport of their own, so that writes do not delay the events of a watch. Leases
// have one too, so that no list and no write delays a renewal.
//
// # Generations
//
// Connections are grouped in generations. A request acquires the current [Generation], and releases it when its body is
// closed. A new generation reads certificates and tokens again. There are three causes for one:
//
//   - A request was refused with 401: [Conn.Reload].
//   - A request stalled: [Conn.Abandon]. Other requests keep their connections as long as they work.
//   - The files of the certificates have changed, which Acquire compares every five minutes.
//
// Tokens from files and from plugins renew themselves besides, as in client-go.
//
// # Dead connections
//
// An HTTP/2 connection from which nothing arrives for 30 s gets a ping, and closes if there is no answer within 15 s.
// It also closes if the peer accepts no byte for 15 s while there is something to write. Its requests then fail, and
// others open a new connection. Options.Ping sets shorter times, as connections for Leases need them.
//
// # Invariants
//
//   - A request is sent over the generation that it acquired, and only once per Release.
//   - The connections of a retired generation close when its last request ends.
//   - Requests that were refused together reload the credentials once.
//   - After Close, no connection is open while there is no request.
//   - No budget of the Limiter delays a request of another budget.
package connection
