package flow

import (
	"bytes"
	"fmt"
	"runtime"
	"time"
)

// overdue arranges for f, whose predecessor has not stopped within the grace, to be reported. Under mu.
func (e *Engine) overdue(f *fiber, now int64) {
	x := f.x.Load()
	if x.pred == nil {
		return
	}
	waited := time.Duration(now - f.look.began)
	e.setTimer(f, now+int64(waited))
	holder := x.pred
	for holder.pred() != nil {
		holder = holder.pred()
	}
	if !holder.look.cancelled.Load() {
		return // it is waited for, not asked to stop
	}
	e.stuck.Add(1)
	s := Stuck{Waiting: e.info(f), Holder: e.info(holder), For: waited}
	var headers [][]byte
	e.goroutines(holder, &headers)
	e.wg.Go(func() {
		s.Stack = stacks(headers)
		e.log.Error("predecessor does not stop", "key", s.Holder.Key, "path", s.Holder.Path, "epoch", s.Holder.Epoch,
			"waiting", s.Waiting.Path, "for", s.For, "stack", s.Stack)
		if e.opt.OnStuck == nil {
			return
		}
		if err := f.guard(func() error { e.opt.OnStuck(s); return nil }); err != nil {
			e.log.Error("OnStuck panicked", "error", err)
		}
	})
}

// goroutines collects the workers that run f or its children. Under mu.
func (e *Engine) goroutines(f *fiber, to *[][]byte) {
	if f.worker > 0 {
		*to = append(*to, e.workers[f.worker-1].goroutine)
	}
	if f.state == Parked && f.why == whyFork {
		for _, c := range f.park.fork.kids {
			if c != nil {
				e.goroutines(c, to)
			}
		}
	}
}

// goroutineHeader returns how stack traces name the goroutine: "goroutine 12 [".
func goroutineHeader() []byte {
	buf := make([]byte, 40)
	buf = buf[:runtime.Stack(buf, false)]
	return append([]byte(nil), buf[:bytes.IndexByte(buf, '[')+1]...)
}

// stacks returns the stacks of the goroutines with these headers, from a picture of all of them.
func stacks(headers [][]byte) string {
	if len(headers) == 0 {
		return ""
	}
	buf := make([]byte, 1<<16)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) || len(buf) >= 64<<20 {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 4*len(buf))
	}
	var out bytes.Buffer
	for one := range bytes.SplitSeq(buf, []byte("\n\n")) {
		for _, h := range headers {
			if bytes.HasPrefix(one, h) {
				fmt.Fprintf(&out, "%s\n\n", bytes.TrimSpace(one))
			}
		}
	}
	return out.String()
}
