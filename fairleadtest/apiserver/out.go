package apiserver

import (
	"net/http"
	"strconv"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// out writes the answer of one request with the faults of its plan. Only one goroutine uses it.
type out struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	x     *exchange
	entry *logEntry

	begun   bool
	buf     []byte
	events  int   // frames in buf
	sent    int64 // bytes of the body that have been written
	pieces  int   // index of the next fragment
	dripped int   // bytes since the last pause
}

const flushAt = 64 << 10

func newOut(w http.ResponseWriter, r *http.Request, x *exchange, entry *logEntry) *out {
	return &out{w: w, rc: http.NewResponseController(w), x: x, entry: entry}
}

// abort aborts the request: it closes the connection (HTTP/1.1) or resets the stream (HTTP/2).
func (o *out) abort() { panic(http.ErrAbortHandler) }

// begin applies the faults between the execution of the request and the answer, and sends the header.
func (o *out) begin(code int, contentType string, length int) {
	p := o.x.plan
	for _, fn := range p.after {
		fn(o.x.r.Context(), *o.x.req)
	}
	if p.dropAfter || o.x.r.Context().Err() != nil {
		o.abort()
	}
	h := o.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache, private")
	warnings := o.x.warnings
	if t := o.x.table; t != nil && t.custom != nil {
		warnings = append(warnings, t.custom.version.Warnings...)
	}
	for _, text := range warnings {
		if w, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			h.Add("Warning", w)
		}
	}
	if p.goAway {
		h.Set("Connection", "close")
	}
	if length >= 0 && p.cut < 0 {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	o.entry.answered(code)
	o.w.WriteHeader(code)
	o.begun = true
	if length < 0 || p.cut >= 0 {
		o.check(o.rc.Flush())
	}
}

// whole sends a complete answer.
func (o *out) whole(code int, contentType string, body []byte) {
	for _, fn := range o.x.plan.rewrite {
		body = fn(append([]byte(nil), body...))
	}
	o.begin(code, contentType, len(body))
	o.emit(body)
	o.entry.sent(len(body), 0)
}

// flush sends the content of buf.
func (o *out) flush() {
	if len(o.buf) == 0 {
		return
	}
	n, events := len(o.buf), o.events
	o.emit(o.buf)
	o.buf, o.events = o.buf[:0], 0
	if cap(o.buf) > 16*flushAt {
		o.buf = nil // drops the memory of a huge object
	}
	o.check(o.rc.Flush())
	o.entry.sent(n, events)
}

// emit writes body bytes, cut and fragmented as planned.
func (o *out) emit(b []byte) {
	p := o.x.plan
	for len(b) > 0 {
		n := len(b)
		if len(p.fragments) > 0 {
			n = min(n, max(1, p.fragments[o.pieces%len(p.fragments)]))
			o.pieces++
		}
		if p.dripBytes > 0 {
			n = min(n, p.dripBytes-o.dripped)
		}
		if p.cut >= 0 {
			if n = int(min(int64(n), p.cut-o.sent)); n == 0 {
				o.check(o.rc.Flush())
				o.abort()
			}
		}
		_, err := o.w.Write(b[:n])
		o.check(err)
		o.sent += int64(n)
		o.dripped += n
		b = b[n:]
		if len(p.fragments) > 0 || p.dripBytes > 0 {
			o.check(o.rc.Flush())
		}
		if p.dripBytes > 0 && o.dripped >= p.dripBytes {
			o.dripped = 0
			sleep(o.x.r.Context(), p.dripEvery)
			o.check(o.x.r.Context().Err())
		}
	}
	if p.cut >= 0 && o.sent >= p.cut {
		o.check(o.rc.Flush())
		o.abort()
	}
}

// check aborts the request if the client has disconnected.
func (o *out) check(err error) {
	if err != nil {
		o.abort()
	}
}
