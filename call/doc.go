// Package call makes requests to a Kubernetes API server under one policy for timeouts, retries, paging and conflicts.
//
// A [Client] represents one API server. All users of that server share the client and with it the connections, the
// retry budget, the metrics and the log. [Do] makes one request and returns the answer as the server sent it:
//
//	c, err := call.New(call.Options{Config: cfg})
//	answer, err := call.Do(ctx, c, call.Request{
//		Verb:      call.VerbGet,
//		Resource:  schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
//		Namespace: "team-a", Name: "web",
//		NotFoundOK: true,
//	}, call.Policy{})
//	if answer == nil { … } // it does not exist, and that is fine
//	var cm corev1.ConfigMap
//	err = answer.Into(&cm)
//
// [List] fetches a list page by page, and [Stream] decodes a long body while it arrives. Both are iterators. [Step]
// makes the same call as a step of package flow. It parks the fiber between two tries, so thousands of flows can wait
// for a retry without a goroutine each.
//
// # Failed tries
//
//   - The call retries after no answer, a timeout, a refused or reset connection, 429, 500, 502, 503 and 504. It waits
//     for a back-off with full jitter, or for the server's Retry-After instead.
//   - A write with an unknown outcome may have been executed. The call retries it only if that is harmless: a create
//     with a fixed name, an update or patch that carries a resourceVersion or is idempotent, or a delete. If the server
//     refuses the retry because the object exists or has changed, the call reads the live object. If that has every
//     field that was sent and no field that the write would have removed, the first try succeeded. Otherwise the
//     refusal is the result. If the live object cannot be read, the refusal is the result and the outcome remains
//     unknown.
//   - An apply that does not match the schema of the kind is final ([ErrSchema]), although servers report it as an
//     internal error.
//   - A write that is too large for the server or its etcd is final: [ErrTooLarge].
//   - A 404 is an error, or a nil answer if the request has NotFoundOK.
//   - A 409 for a write runs the request's OnConflict function after a back-off, at most Policy.Conflicts times.
//   - A 410 for a continue token restarts a list, once. A 401 reloads the credentials, once. All other answers are
//     final, including a redirect of a write.
//
// # Invariants
//
//   - A try never outlives its own timeout. Its timeout never appears as an expiry of the caller's context.
//   - No request is sent after the caller's context has ended, and a request in flight is cancelled. The error then
//     matches the context's cause. A client that is bound to a fiber or a reconciliation needs no other way to stop.
//   - The retries of all callers towards one server stay within the budget of its Client.
//   - The error of a call is an [*Error]. It has the operation, kind, namespace, name, the server's message and causes,
//     and the failures of earlier tries. errors.As finds the *apierrors.StatusError of the last try, so
//     apierrors.IsConflict and similar functions work.
//
// All types and functions are safe for concurrent use unless their documentation says otherwise.
//
// # Parts
//
// [Client] connects the parts that all calls to one server share.
//
//   - [Budget] (budget.go): the retries of all callers; own mutex.
//   - spans (trace.go): the spans of tries; constant.
//   - warnings (warnings.go): the warnings of the server that were logged; own mutex.
//   - [Metrics] (metrics.go): counters. http.go sends one try over the connection.
//   - exchange (do.go): one call in progress, which makes one try at a time. Do, [Step], list.go and stream.go drive
//     it. It belongs to one goroutine or fiber and has no lock.
//   - decide (decide.go): the next action after a try, as a pure function of the request and its progress. compare.go,
//     managedfields.go and verify.go answer whether a write has been executed.
//
// No lock is held while another one is acquired.
package call
