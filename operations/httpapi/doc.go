// Package httpapi serves operations over HTTP, with the conventions for long-running requests. [New] returns the
// handler.
//
//	GET  /operations/{resourceType}/{resourceID}         the operation of a resource; Retry-After while it runs
//	GET  /operations                                     a page; filters: status, phase, type, category, correlationID,
//	                                                     resourceType, related; limit and continue
//	GET  /operations/{resourceType}/{resourceID}/events  server-sent events until the operation ends
//	POST /operations                                     schedule; 202 with Location
//	POST /operations/{resourceType}/{resourceID}:cancel  request cancellation; 202
//	POST /callbacks/{token}                              outcome of an AsyncCallback webhook
//	GET  /openapi.json                                   this API as OpenAPI 3.1
//
// The query parameter namespace selects the namespace. Paths below /operations refuse an unknown or repeated query
// parameter. Errors are application/problem+json (RFC 9457) and say how to correct the request. Their member fields
// lists all problems of fields, headers and query parameters at once.
//
// Callers authenticate with a bearer token that Kubernetes accepts and need rights on operations.fairlead.io in the
// namespace; see [Authorizer]. A caller without the right gets 403 whether or not the operation exists.
//
//	get     GET of an operation and its events; and details in other answers that the caller has not sent: the running
//	        operation in a 409, the outcome of a repeated request, the answer to a cancellation
//	list    pages
//	create  POST /operations
//	update  cancellation; and POST /operations where it replaces an operation that has ended
//
// If the caller has the right but the API server refuses the request, the answer is 403 with a cause. The cause is
// QuotaExceeded for a ResourceQuota, NamespaceTerminating, AdmissionDenied for other admission, or ServerLacksRight.
// The answer has no Retry-After: a quota becomes free when operations are deleted, which depends on their time to live.
//
// The server reads no body and assigns no slot before it has checked the right. A callback is authorized by its token
// alone. The numbers of concurrent requests, event streams and callbacks are bounded, and shared between namespaces and
// callers (see [Options]), so that none of them starves the others. A namespace or caller over its share gets 429.
// Every caller gets 503 when the server is full. Both have Retry-After. The size of a page is bounded too, so a page of
// large operations has fewer items.
//
// Where replicas share the operations, each replica answers for all namespaces. It reads namespaces that its store
// lacks from the API server, 100 operations at a time. An event stream then follows its operation by its own watch,
// also when the operation leaves the store during the stream.
//
// A caller that has lost the answer repeats the request with the same Idempotency-Key. The operation does not run
// twice. Without a key the server cannot recognize the repetition. A key belongs to one resource and should be a UUID:
// receivers identify a request by its key and would mistake the same key of another resource for a repetition. A
// replica refuses such a use if it received the first one among its latest 16,384 keys. Replicas do not ask each other,
// since that would cost an extra request per operation.
//
// # Parts
//
// New connects the parts. Each request passes from the top to the bottom. No part calls another one with its lock held.
//
//	traced      trace.go     the span of a request; no state
//	frontend    frontend.go  deadlines, unknown paths, answers to errors, log; no state
//	guard       admit.go     runs an endpoint for an admitted caller within a limit; no state
//	admitter    admit.go     namespace and right of a request; no state
//	limit       limits.go    concurrent requests of one sort; locks its fair.Semaphore
//	reader      reader.go    one operation from the store or the API server; no state
//	writer      schedule.go  schedules and cancels; no state but keys
//	keys        keys.go      the resource of each idempotency key; its own lock
//	pager       page.go      pages from the store or the API server; no state
//	streamer    events.go    begins event streams; no state
//	followers   follow.go    the changes of one operation; no state
//	stream      stream.go    one event stream; owned by the goroutine of its request
//	callbacks   callback.go  passes outcomes to the sink; no state but spent
//	spent       callback.go  errors of unsuccessful callbacks; its own lock
package httpapi
