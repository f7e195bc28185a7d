// Package overlay is the transport of client.Overlay. It recognises the writes of a client-go program by method and
// path, and adds their answers to the stores through package pending.
//
//   - transport forwards requests. Its only state is the map of requests in progress, for CancelRequest.
//   - write is one request that changes a watched object.
//   - sentBody reads the body of a request without consuming it.
package overlay
