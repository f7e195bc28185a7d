package apiserver

import (
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is the server's side of one watch: a cursor over the log of its table. Only one goroutine uses it.
type stream struct {
	x         *exchange
	sel       selection
	handle    *Watch
	cursor    uint64 // revision up to which the log has been read
	bookmarks bool
	initial   []*object // not yet sent as ADDED
	initialAt uint64    // revision of the initial events; 0: no bookmark follows them
	passed    map[*Hold]int
	count     int      // events sent, without bookmarks
	sent      []change // for ReplayEvents
}

// change is one event for the client.
type change struct {
	typ watch.EventType
	obj *object
}

func (x *exchange) watch() error {
	opts, err := x.listOptions()
	if err != nil {
		return err
	}
	rev, given, err := x.version(opts.ResourceVersion)
	if err != nil {
		return err
	}
	timeout := 30 * time.Minute // of a watch without timeoutSeconds
	if t := opts.TimeoutSeconds; t != nil && *t != 0 {
		timeout = time.Duration(*t) * time.Second
	}
	sel, err := x.selection(opts)
	if err != nil {
		return err
	}
	w := &stream{x: x, sel: sel, passed: map[*Hold]int{}}
	w.bookmarks = opts.AllowWatchBookmarks && !x.plan.watch.noBookmarks
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	now := x.s.store.current()
	if at := x.plan.list.at; at != 0 {
		now = min(now, at)
	}
	var refusal *metav1.Status
	tooOld := Expired()
	switch {
	case initial && rev > now:
		refusal = new(asStatus(x.tooLarge(rev, now)))
	case initial || rev == 0 && opts.SendInitialEvents == nil:
		objects, at, ok := x.s.store.snapshotAt(x.table, now)
		if !ok {
			refusal = &tooOld
			break
		}
		w.cursor = at
		for _, o := range objects {
			if w.sel.matches(o) {
				w.initial = append(w.initial, o)
			}
		}
		if given && rev == 0 && !x.has("sendInitialEvents") {
			slices.Reverse(w.initial) // clients must not rely on an order of cached state
		}
		if initial && opts.AllowWatchBookmarks {
			w.initialAt = at
		}
	case rev == 0: // sendInitialEvents=false: only later changes
		w.cursor = now
	default:
		w.cursor = rev
		if rev < x.s.store.compactedAt() {
			refusal = &tooOld
		}
	}
	w.handle = x.s.openWatch(*x.req)
	defer x.s.closeWatch(w.handle)
	x.out.begin(http.StatusOK, x.enc.contentType(true), -1)
	if refusal != nil {
		w.end(*refusal)
		return nil
	}
	w.run(timeout)
	x.out.flush()
	return nil
}

func (x *exchange) has(param string) bool { _, ok := x.query[param]; return ok }

// run sends events until the client disconnects, the timeout expires, or a fault ends the stream.
func (w *stream) run(timeout time.Duration) {
	x, fault := w.x, w.x.plan.watch
	var over <-chan time.Time
	if !fault.ignoreTimeout {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		over = timer.C
	}
	ticker := time.NewTicker(x.s.opts.BookmarkInterval)
	defer ticker.Stop()
	for {
		if !w.commands() {
			return
		}
		var changed, held <-chan struct{}
		if !fault.silent {
			var more bool
			if changed, held, more = w.deliver(); !more {
				return
			}
		}
		x.out.flush()
		select {
		case <-x.r.Context().Done():
			return
		case <-over:
			if w.bookmarks && !fault.silent {
				w.bookmark(nil)
			}
			return
		case <-ticker.C:
			if w.bookmarks && !fault.silent {
				w.bookmark(nil)
			}
		case <-changed:
		case <-held:
		case <-w.handle.wake:
		}
	}
}

// deliver sends the events that may be sent now and returns the channels to wait for. more is false at the end of the
// stream.
func (w *stream) deliver() (changed, held <-chan struct{}, more bool) {
	x, fault := w.x, w.x.plan.watch
	for {
		if w.finished() {
			if s := fault.errorEvent; s != nil && w.count >= fault.errorAfter {
				w.end(*s)
			}
			return nil, nil, false
		}
		if len(w.initial) > 0 {
			if ok, wait := x.s.mayPass(x.req, w.passed, false); !ok {
				return nil, wait, true
			}
			w.event(change{watch.Added, w.initial[0]})
			w.initial = w.initial[1:]
			continue
		}
		if w.initialAt != 0 {
			if ok, wait := x.s.mayPass(x.req, w.passed, true); !ok {
				return nil, wait, true
			}
			w.initialEnd()
		}
		events, _, next, ok := x.s.store.eventsAfter(x.table, w.cursor)
		if !ok {
			w.end(Expired())
			return nil, nil, false
		}
		if len(events) == 0 {
			if !x.s.store.stillServed(x.table) {
				return nil, nil, false
			}
			return next, nil, true
		}
		for _, r := range events {
			c, relevant := w.sel.change(r, x.s.store.version)
			if relevant {
				if ok, wait := x.s.mayPass(x.req, w.passed, false); !ok {
					return nil, wait, true
				}
				w.event(c)
			}
			w.cursor = r.rev
			if w.finished() {
				break
			}
		}
	}
}

// finished reports whether a fault ends the stream after the events sent so far.
func (w *stream) finished() bool {
	fault := w.x.plan.watch
	return fault.errorEvent != nil && w.count >= fault.errorAfter || fault.endAfter >= 0 && w.count >= fault.endAfter
}

// change converts a revision to the event of a watch with this selection. An object that enters the selection is ADDED.
// An object that leaves it is DELETED, with the state before and the version of the change.
func (s selection) change(r *revision, v versioner) (change, bool) {
	prev, cur := r.prev.as(s.table), r.cur.as(s.table)
	before := s.matches(prev)
	if r.typ == watch.Deleted {
		return change{watch.Deleted, cur}, before
	}
	now := s.matches(cur)
	switch {
	case now && before:
		return change{watch.Modified, cur}, true
	case now:
		return change{watch.Added, cur}, true
	case before:
		r.leftOnce.Do(func() { r.left = r.prev.withVersion(v, r.rev) })
		return change{watch.Deleted, r.left.as(s.table)}, true
	}
	return change{}, false
}

// event sends one event with the faults that multiply or reorder events.
func (w *stream) event(c change) {
	fault := w.x.plan.watch
	w.count++
	if fault.replay > 0 {
		for _, old := range w.sent {
			w.frame(old)
		}
		w.sent = append(w.sent, c)
		if len(w.sent) > fault.replay {
			w.sent = w.sent[1:]
		}
	}
	w.frame(c)
	if fault.duplicate {
		w.frame(c)
	}
}

func (w *stream) frame(c change) {
	o := w.x.out
	if len(w.x.plan.rewrite) == 0 {
		buf, err := w.x.enc.appendFrame(o.buf, c.typ, c.obj)
		if err != nil {
			w.end(errors.NewInternalError(err).Status())
			o.abort()
		}
		o.buf = buf
	} else {
		b, err := w.x.enc.appendFrame(nil, c.typ, c.obj)
		if err != nil {
			w.end(errors.NewInternalError(err).Status())
			o.abort()
		}
		for _, fn := range w.x.plan.rewrite {
			b = fn(b)
		}
		o.buf = append(o.buf, b...)
	}
	o.events++
	if len(o.buf) >= flushAt {
		o.flush()
	}
}

// raw sends one frame with an encoded body.
func (w *stream) raw(typ watch.EventType, body []byte) {
	o := w.x.out
	o.buf = w.x.enc.appendRawFrame(o.buf, typ, body)
	o.events++
}

// end sends an ERROR event and closes the stream.
func (w *stream) end(s metav1.Status) {
	w.raw(watch.Error, w.x.enc.status(s))
	w.x.out.flush()
}

func (w *stream) initialEnd() {
	fault, version := w.x.plan.watch, w.x.s.store.version.format(w.initialAt)
	w.initialAt = 0
	annotations := map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	if fault.plainInitialEnd {
		annotations = nil
	}
	if !fault.noInitialEnd {
		w.bookmarkAt(version, annotations)
	}
}

// bookmark sends the present version if the client has received all changes up to it.
func (w *stream) bookmark(annotations map[string]string) {
	x := w.x
	if ok, _ := x.s.mayPass(x.req, w.passed, true); !ok || len(w.initial) > 0 {
		return
	}
	events, now, _, ok := x.s.store.eventsAfter(x.table, w.cursor)
	if !ok || len(events) > 0 {
		return // pending events come first, and after a compaction it is unknown whether there were any
	}
	w.bookmarkAt(x.s.store.version.format(now), annotations)
}

func (w *stream) bookmarkAt(version string, annotations map[string]string) {
	body, err := w.x.enc.bookmark(w.x.table, version, annotations)
	if err != nil {
		return
	}
	w.raw(watch.Bookmark, body)
}
