// Package call makes requests to a Kubernetes API server under one policy: timeout, retry, paging, conflict.
//
// A [Client] stands for one API server; everybody who talks to that server shares it, and with it the connections,
// the retry budget, the metrics and the log. [Do] makes one request and returns the answer as the server sent it:
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
// [List] pages by itself and [Stream] decodes one long body while it arrives; both are iterators. [Step] is the same
// call as a step of package flow, which parks the fiber between two tries, so that thousands of flows can be in retry
// without a goroutine each.
//
// # What happens to a try that fails
//
//   - No answer, a timeout, a refused or reset connection, 429, 500, 502, 503 and 504 are tried again after a back-off
//     with full jitter; the server's Retry-After wins over the back-off.
//   - A write whose outcome is unknown (it may have been executed) is tried again only if that cannot do harm: a
//     create with a fixed name, an update or patch that carries a resourceVersion or is idempotent, a delete. When the
//     repeated write is then refused because the thing exists or has changed, the live object decides: it holds every
//     field that was sent, and nothing that the write would have removed, so the first try had succeeded, or it does
//     not, and the refusal stands. It stands also where the live object cannot be read; the outcome then stays
//     unknown.
//   - An apply of what the schema of the kind does not know is final, though servers call that an error of their own:
//     [ErrSchema].
//   - A write that is too large for the server, or for the etcd behind it, is final: [ErrTooLarge].
//   - 404 is a failure, or a nil answer when the request says that absence is fine.
//   - 409 on a write runs the request's OnConflict function after a back-off, a bounded number of times.
//   - 410 on a continue token starts a list again, once. 401 reloads the credentials, once. All else is final, also
//     the redirection of a write.
//
// # Invariants
//
//   - A try never outlives its own timeout, and its timeout never shows as an expiry of the caller's context.
//   - No request is sent once the caller's context has ended, and one in flight is cancelled on the wire; the error
//     then matches the context's cause. A client that is bound to a fiber or a reconciliation needs nothing else to
//     stop.
//   - Retries towards one server, of all callers together, stay within the budget of its Client.
//   - The error of a call is an [*Error]: operation, kind, namespace, name, the server's own message and causes, and
//     what every earlier try had met. errors.As finds the *apierrors.StatusError of the last try, so
//     apierrors.IsConflict and its like work.
//
// Everything here is safe for concurrent use unless it says otherwise.
//
// # Reading order
//
// Each file rests on those before it, with few exceptions:
//
//   - what a caller gives and gets: call.go, errors.go, metrics.go, budget.go, credentials.go, client.go;
//   - one try on the wire: body.go, http.go;
//   - what follows from an answer: compare.go, managedfields.go, verify.go, decide.go;
//   - whole calls: do.go, list.go, stream.go, step.go.
package call
