package flow

import (
	"github.com/fairlead-io/fairlead/internal/tracing"
)

// openSpans are the fibers that have a span, which must not wait for long with it: nobody sees a span before it has
// ended, and a process that dies takes those with it that have not. One alarm looks at all of them once in a while; a
// fiber that goes on before that sees for itself. Guarded by Engine.mu.
type openSpans struct {
	of    map[*fiber]struct{}
	unset func() bool // nil while no alarm is set
}

// spanOpened notes that a fiber has a span.
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

// watchSpans sets the alarm, unless it is set. Under mu.
func (e *Engine) watchSpans() {
	if e.spans.unset == nil && !e.halted {
		e.wg.Add(1)
		e.spans.unset = e.clock.AfterFunc(tracing.Life, e.closeSpans)
	}
}

// closeSpans ends the spans of the fibers that are parked for too long. It runs in the goroutine of the alarm.
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

// stop unsets the alarm. Under mu.
func (s *openSpans) stop(e *Engine) {
	if s.unset != nil && s.unset() {
		e.wg.Done()
	}
	s.unset = nil
}
