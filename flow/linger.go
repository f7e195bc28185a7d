package flow

import (
	"github.com/fairlead-io/fairlead/internal/tracing"
)

// openSpans are the fibers that have an open span. A span is exported only when it ends, and a crash loses open spans.
// A parked fiber therefore must not keep its span open for long. One alarm checks all of them periodically. A fiber
// that resumes earlier checks its own span. Guarded by Engine.mu.
type openSpans struct {
	of    map[*fiber]struct{}
	unset func() bool // nil if no alarm is set
}

// spanOpened records that a fiber has an open span.
func (e *Engine) spanOpened(f *fiber) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.spans.of == nil {
		e.spans.of = make(map[*fiber]struct{})
	}
	e.spans.of[f] = struct{}{}
	e.watchSpans()
}

func (e *Engine) spanClosed(f *fiber) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.spans.of, f)
}

// watchSpans sets the alarm unless it is set. The caller holds mu.
func (e *Engine) watchSpans() {
	if e.spans.unset == nil && !e.halted {
		e.wg.Add(1)
		e.spans.unset = e.clock.AfterFunc(tracing.Life, e.closeSpans)
	}
}

// closeSpans ends the spans of fibers that have been parked for longer than tracing.Life. It runs in the goroutine of
// the alarm.
func (e *Engine) closeSpans() {
	defer e.wg.Done()
	var ends []func()
	e.mu.Lock()
	e.spans.unset = nil
	now := e.now()
	for f := range e.spans.of {
		if t := f.tracing(); f.state == Parked && now-t.parked > int64(tracing.Life) {
			delete(e.spans.of, f)
			ends = append(ends, t.close(e))
		}
	}
	if len(e.spans.of) > 0 {
		e.watchSpans()
	}
	e.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// stop unsets the alarm. The caller holds mu.
func (s *openSpans) stop(e *Engine) {
	if s.unset != nil && s.unset() {
		e.wg.Done()
	}
	s.unset = nil
}
