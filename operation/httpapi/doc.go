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
// change. Callers prove who they are with a bearer token that Kubernetes knows, and need the right of the same verb on
// operations.fairlead.io in the namespace; see [Authorizer]. A caller without the right gets 403 whether or not the
// operation exists.
package httpapi
