package flow

import (
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
)

// TestFiberSpansAlone: the span of a parked fiber ends after a while, and the next one links to it. There is no engine.
func TestFiberSpansAlone(t *testing.T) {
	t.Parallel()
	clock, made := &handClock{now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}, spans.New()
	c, wg, s := &core{time: newTimeline(clock)}, &sync.WaitGroup{}, &fiberSpans{}
	s.start(c, wg, false)
	f := newFiber(&packet{})
	f.e, f.flow = c, (&registry{}).bind(New("f", note("a")).def)
	s.resume(f, c.time.now())
	if !s.off() || f.tracing() != nil || len(clock.alarms) > 0 {
		t.Error("without a tracer there is work to do")
	}
	s.use(made.Tracer("test"))
	s.use(spans.New().Tracer("second")) // a tracer was set before
	s.resume(f, c.time.now())
	if s.off() || f.tracing().span == nil || len(clock.alarms) != 1 {
		t.Fatalf("no span is open, or not with one alarm: %d", len(clock.alarms))
	}
	c.mu.Lock()
	f.state = Parked
	s.park(f)
	c.mu.Unlock()
	parked := clock.Now()
	clock.now = clock.now.Add(tracing.Life + time.Second)
	for a := range clock.alarms {
		delete(clock.alarms, a)
		a.f()
	}
	first := made.Named("f")
	if len(first) != 1 || !first[0].EndTime().Equal(parked) || spans.Value(first[0], "flow.status") != "parked" {
		t.Fatalf("%d spans have ended, want one, as of when the fiber was parked", len(first))
	}
	f.state = Running
	s.resume(f, c.time.now())
	s.end(f, Completed, nil)
	if all := made.Named("f"); len(all) != 2 || !spans.Links(all[1], first[0]) {
		t.Errorf("%d spans have ended, want a second one with a link to the first", len(all))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.stop()
	if len(clock.alarms) > 0 || len(s.open) > 0 {
		t.Errorf("%d alarms and %d open spans are left", len(clock.alarms), len(s.open))
	}
}
