package schedule

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

var (
	errKilled  = fmt.Errorf("the process was killed: %w", syscall.ECONNREFUSED)
	errNetwork = fmt.Errorf("the connection was lost: %w", syscall.ECONNRESET)
)

// wire is what all transports of a run share.
type wire struct {
	progress func()

	seed  uint64
	rec   *recorder
	gates *gates
	turn  chan struct{} // holds a token while a write is in the server, so that changes belong to one write
	touch func(request) // writes to an object as another client

	stored  func(context.Context, schema.GroupResource, *http.Response) // see Options; may be nil
	reached func(context.Context, schema.GroupResource, string)         // see Options; may be nil

	coverage *coverage
}

// transport sends the requests of one process to the API server. If that is a process of the subject, the faults of
// the plan happen here.
type transport struct {
	*wire
	inner   http.RoundTripper
	actor   string
	process *Process // nil: not the subject
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.process != nil && t.process.isDead() {
		return nil, errKilled
	}
	t.progress()
	resp, err := t.roundTrip(r)
	if err == nil && t.actor != engine.Cluster {
		t.coverage.asked(r, resp.StatusCode)
	}
	return resp, err
}

func (t *transport) roundTrip(r *http.Request) (*http.Response, error) {
	q, ok := parse(r)
	switch {
	case !ok:
		return t.inner.RoundTrip(r)
	case !q.isWrite():
		return t.read(r, q)
	}
	body, err := content(r)
	if err != nil {
		return nil, err
	}
	if t.process == nil || t.rec.locks(q, body) || isEvent(q.resource) {
		return t.plain(r, q, body)
	}
	return t.deliver(r, t.process, q, q.nameIn(body), body, func() { t.touch(q) }, t.store(q))
}

// read never waits. It makes a watch of the subject late if a fault demands it.
func (t *transport) read(r *http.Request, q request) (*http.Response, error) {
	if t.process == nil {
		return t.inner.RoundTrip(r)
	}
	kind := q.resource.String()
	if q.verb != "watch" {
		if kind != "leases.coordination.k8s.io" {
			t.rec.request("the " + q.verb + " of " + kind)
		}
		if q.verb == "list" && r.URL.Query().Get("resourceVersion") == "0" {
			t.coverage.allowsPast()
			if version := t.gates.pastOf(kind); version != "" {
				r = at(r, version)
			}
		}
		return t.inner.RoundTrip(r)
	}
	t.rec.watch(q.resource)
	if resumes(r) && t.process.takeExpired(kind) {
		return failure(r, http.StatusGone, "Expired", "too old resource version"), nil
	}
	opened := time.Now()
	if version := t.gates.pastOf(kind); version != "" {
		if r.URL.Query().Get("sendInitialEvents") == "true" { // a server that has it would show the present state
			return failure(r, http.StatusUnprocessableEntity, "Invalid",
				"sendInitialEvents: Forbidden: the WatchList feature gate is disabled"), nil
		}
		opened = time.Time{}
	}
	resp, err := t.inner.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK {
		if t.reached != nil {
			resp.Body = newFrames(resp.Body, func(version string) { t.reached(r.Context(), q.resource, version) })
		}
		resp.Body = newLateBody(resp, r.Context().Done(), t.gates, kind, opened, t.process)
	}
	return resp, err
}

// at returns a list as of a resource version.
func at(r *http.Request, version string) *http.Request {
	r = r.Clone(r.Context())
	q := r.URL.Query()
	q.Set("resourceVersion", version)
	q.Set("resourceVersionMatch", "Exact")
	r.URL.RawQuery = q.Encode()
	return r
}

// resumes reports whether a watch starts at a version that the client has seen. Otherwise it starts with a list.
func resumes(r *http.Request) bool {
	q := r.URL.Query()
	version := q.Get("resourceVersion")
	return version != "" && version != "0" && q.Get("sendInitialEvents") != "true"
}

// plain sends a write without faults: of the workload, of the cluster, or of a lock or an event of the subject. The
// trace has those of the first two. A process that is suspended cannot renew its lock.
func (t *transport) plain(r *http.Request, q request, body []byte) (*http.Response, error) {
	if t.process == nil {
		m := engine.Moment{Verb: q.verb, Object: t.rec.ref(q, q.nameIn(body)), Subresource: q.subresource}
		return t.send(r, t.actor, m, nil, t.store(q))
	}
	if !isEvent(q.resource) {
		t.rec.lock()
		t.process.writesLock(Lock{q.resource, types.NamespacedName{Namespace: q.namespace, Name: q.nameIn(body)}})
	}
	if err := t.process.resumed(r.Context().Done()); err != nil {
		return nil, err
	}
	if !isEvent(q.resource) && t.process.isDeposed() {
		return nil, errNetwork
	}
	resp, err := t.inner.RoundTrip(r)
	if err == nil && t.process.isDead() {
		_ = resp.Body.Close()
		return nil, errKilled
	}
	return resp, err
}

// store returns the function that sends a write. It returns when the change has been recorded.
func (t *transport) store(q request) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := t.inner.RoundTrip(r)
		if err == nil && t.stored != nil && resp.StatusCode < 300 {
			t.stored(r.Context(), q.resource, resp)
		}
		return resp, err
	}
}

// deliver plays the faults of a write, and has it sent by send if no fault prevents that. The write waits before it
// gets its number, so that writes of several goroutines at the same time are numbered in an order that follows from the
// seed and from what they write.
func (w *wire) deliver(r *http.Request, p *Process, q request, name string, body []byte, touch func(),
	send func(*http.Request) (*http.Response, error),
) (*http.Response, error) {
	ctx := r.Context()
	if err := sleep(ctx.Done(), w.delayOf(fmt.Sprint(q, name, string(body)))); err != nil {
		return nil, err
	}
	m := w.rec.moment(q, name)
	w.rec.request(described(m))
	if err := p.resumed(ctx.Done()); err != nil {
		return nil, err
	}
	if p.isDead() {
		return nil, errKilled
	}
	var after *engine.Fault
	for _, f := range w.rec.write(m) {
		switch f.Kind {
		case engine.CrashAfter, engine.Lost:
			after = &f
			continue
		case engine.Conflict:
			w.rec.note("outside", f.String())
			touch()
			continue
		case engine.Pause:
			w.rec.note(engine.Subject, f.String())
			p.suspend(time.Duration(f.For))
			// The write is on the network already, so it arrives even if the process gives it up meanwhile.
			r = r.WithContext(context.WithoutCancel(ctx))
			_ = sleep(nil, time.Duration(f.For))
			continue
		case engine.Depose:
			w.rec.note(engine.Subject, f.String())
			p.depose(time.Duration(f.For))
			continue
		}
		w.rec.mark(engine.Subject, m, f.String())
		switch f.Kind {
		case engine.CrashBefore:
			p.kill()
			return nil, errKilled
		case engine.Unsent:
			return nil, errNetwork
		case engine.Refused:
			return failure(r, http.StatusInternalServerError, "InternalError", "etcdserver: request timed out"), nil
		case engine.Throttled:
			return failure(r, http.StatusTooManyRequests, "TooManyRequests", "too many requests, try again later"), nil
		}
	}
	resp, err := w.send(r, engine.Subject, m, after, send)
	if err != nil {
		return nil, err
	}
	switch {
	case after != nil && after.Kind == engine.CrashAfter:
		p.kill()
		err = errKilled
	case after != nil:
		if err = sleep(ctx.Done(), w.delayOf(fmt.Sprint(m))); err == nil {
			err = errNetwork
		}
	default:
		err = sleep(ctx.Done(), w.delayOf(fmt.Sprint(m)))
	}
	if err == nil && p.isDead() {
		err = errKilled
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// send sends a write while no other one is in a server.
func (w *wire) send(r *http.Request, actor string, m engine.Moment, after *engine.Fault,
	send func(*http.Request) (*http.Response, error),
) (*http.Response, error) {
	select {
	case w.turn <- struct{}{}:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	defer func() { <-w.turn }()
	w.rec.begin(actor, m)
	resp, err := send(r)
	status, reason, text := 0, "", ""
	if err == nil {
		status = resp.StatusCode
		if reason, err = reasonOf(resp); err != nil {
			resp = nil
		}
	}
	if after != nil {
		text = after.String()
	}
	w.rec.end(status, reason, text)
	return resp, err
}

// reasonOf returns the message of an answer that refuses a write, and "" for other answers. The body can be read after
// it. The error is that of reading the body.
func reasonOf(resp *http.Response) (string, error) {
	if resp.StatusCode < http.StatusBadRequest {
		return "", nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return "", err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if status, ok := obj.(*metav1.Status); ok && err == nil {
		return status.Message, nil
	}
	return "", nil // a proxy or a webhook may answer otherwise
}

// delayOf returns a time between 1 and 5 ms that follows from the seed and a text.
func (w *wire) delayOf(text string) time.Duration {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, w.seed, text)
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return time.Millisecond + time.Duration(x%uint64(4*time.Millisecond))
}

// described names a write without its number.
func described(m engine.Moment) string {
	if m.Subresource != "" {
		return "the " + m.Verb + " of " + m.Subresource + " of " + m.Object
	}
	return "the " + m.Verb + " of " + m.Object
}

// failure returns an answer of the server that stores nothing.
func failure(r *http.Request, code int, reason, message string) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`,
		message, reason, code)
	resp := &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
	}
	if code == http.StatusTooManyRequests {
		resp.Header.Set("Retry-After", "1")
	}
	return resp
}
