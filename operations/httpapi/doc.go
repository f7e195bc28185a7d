// Package httpapi shows operations over HTTP, with the conventions for long-running requests.
//
//	GET  /operations/{resourceType}/{resourceID}         the operation of a resource; Retry-After while it runs
//	GET  /operations                                     a page; filters: status, phase, type, category, correlationID,
//	                                                     resourceType, related; limit and continue
//	GET  /operations/{resourceType}/{resourceID}/events  server-sent events until the end
//	POST /operations                                     schedule; 202 with Location
//	POST /operations/{resourceType}/{resourceID}:cancel  ask for cancellation; 202
//	POST /callbacks/{token}                              outcome of an AsyncCallback webhook
//	GET  /openapi.json                                   all of this, as OpenAPI 3.1
//
// The namespace is the query parameter namespace. A query parameter that is unknown or repeated is refused. Errors are application/problem+json (RFC 9457) and say what to
// change: all that is wrong with fields, headers and query parameters at once, in fields. Callers prove who they are
// with a bearer token that Kubernetes knows, and need rights on operations.fairlead.io in the namespace; see
// [Authorizer]. A caller without the right gets 403 whether or not the operation exists.
//
//	get     GET of an operation and its events; what other answers tell of an operation beyond what the caller has sent himself: the
//	        running one in a 409, what has become of a request that is sent again, the answer to a cancellation
//	list    pages
//	create  POST /operations
//	update  cancellation; and POST /operations where it replaces an operation that has ended
//
// A request that the caller has the right to, and that the API server refuses, gets 403 with a cause: QuotaExceeded for a
// ResourceQuota, NamespaceTerminating, AdmissionDenied for another admission, ServerLacksRight. It gets no Retry-After: a
// quota is free again when operations are deleted, which their time to live decides.
//
// Before the right is known nothing is read and no place is taken; a callback is known by its token alone. Requests,
// event streams and callbacks at a time are bounded, and shared between namespaces and callers (see [Options]), so that
// one of them keeps no others out: who has too many gets 429, everybody gets 503 when there is no place at all, both
// with Retry-After. A page is short when what it has is long.
//
// Where replicas share the operations, each answers for all namespaces: what its store lacks it reads from the API server,
// a page of a namespace 100 operations at a time, and an event stream follows its operation by a watch of its own, also
// when the operation leaves the store while it is followed.
//
// A request whose answer was lost is sent again with the same Idempotency-Key, and runs nothing twice; without a key
// nobody can tell the two apart. A key belongs to one resource, and is best a UUID: receivers know a request by it, and
// would take that of another resource with the same key for a repetition. Such a use is refused where it is noticed,
// which is by the replica that took the first one, for the latest 16,384 keys; replicas do not ask each other, since
// that would cost every operation a request.
package httpapi
