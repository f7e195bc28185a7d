// Package httpapi shows operations over HTTP, with the conventions for long-running requests.
//
//	GET  /operations/{resourceType}/{resourceID}         the operation of a resource; Retry-After while it runs
//	GET  /operations?status=&resourceType=&limit=&continue=   a page
//	GET  /operations/{resourceType}/{resourceID}/events  server-sent events until the end
//	POST /operations                                     schedule; 202 with Location
//	POST /operations/{resourceType}/{resourceID}:cancel  ask for cancellation; 202
//	POST /callbacks/{token}                              outcome of an AsyncCallback webhook
//	GET  /openapi.json                                   all of this, as OpenAPI 3.1
//
// The namespace is the query parameter namespace. Errors are application/problem+json (RFC 9457) and say what to
// change: all that is wrong with fields, headers and query parameters at once, in fields. Callers prove who they are with a bearer token that Kubernetes knows, and need the right of the same verb on
// operations.fairlead.io in the namespace; see [Authorizer]. A caller without the right gets 403 whether or not the
// operation exists.
//
// A request whose answer was lost is sent again with the same Idempotency-Key, and runs nothing twice; without a key nobody can tell the two
// apart. A key belongs to one resource, and is best a UUID: receivers know a request by it, and would take that of another resource with
// the same key for a repetition. Such a use is refused where it is noticed, which is by the replica that took the first one, for the latest
// 16,384 keys; replicas do not ask each other, since that would cost every operation a request.
package httpapi
