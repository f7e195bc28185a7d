package flowtest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/flow"
)

// Monitor checks F1 and F2 on the steps and fibers that a test registers with it. F1: at most one fiber per key runs,
// and a successor starts after its predecessor's code has returned. F2: a fiber ends exactly once, and its callback
// always runs. Only TB must be set.
type Monitor struct {
	testing.TB

	mu     sync.Mutex
	inside map[string]map[uint64]int // key → epoch → number of steps and callbacks that are running
	newest map[string]uint64         // key → the highest epoch that has run
	fibers map[string]*life
}

type life struct {
	handle flow.Handle
	ends   int
	result flow.Result
}

// Watched returns step with its code under the monitor.
func Watched[P any](m *Monitor, step flow.StepFunc[P]) flow.StepFunc[P] {
	return func(ctx context.Context, f *flow.Fiber[P]) flow.Next {
		defer m.enter(f.Key(), f.Epoch(), f.Path())()
		return step(ctx, f)
	}
}

// enter records that code of a fiber begins. The returned function records its end.
func (m *Monitor) enter(key string, epoch uint64, path string) func() {
	if key == "" {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inside == nil {
		m.inside, m.newest = map[string]map[uint64]int{}, map[string]uint64{}
	}
	if m.inside[key] == nil {
		m.inside[key] = map[uint64]int{}
	}
	for other, n := range m.inside[key] {
		if other != epoch && n > 0 {
			m.Errorf("F1: %s (epoch %d of %s) runs beside epoch %d", path, epoch, key, other)
		}
	}
	if m.newest[key] > epoch {
		m.Errorf("F1: %s (epoch %d of %s) runs after epoch %d", path, epoch, key, m.newest[key])
	}
	m.newest[key] = epoch
	m.inside[key][epoch]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.inside[key][epoch]--
	}
}

// OnEnd returns a callback for StartOptions.OnEnd, which calls next if next is not nil. name must be unique among
// fibers.
func (m *Monitor) OnEnd(name string, next func(flow.Result)) func(flow.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.life(name)
	return func(r flow.Result) {
		if r.Begun {
			defer m.enter(r.Handle.Key(), r.Handle.Epoch(), "callback of "+name)()
		}
		m.mu.Lock()
		l.ends++
		l.result = r
		switch {
		case l.ends > 1:
			m.Errorf("F2: %s ended %d times", name, l.ends)
		case !r.Status.Ended(), (r.Err == nil) != (r.Status == flow.Completed),
			errors.Is(r.Err, flow.ErrCancelled) != (r.Status == flow.Cancelled || r.Status == flow.Moved):
			m.Errorf("F2: %s ended %v with error %v", name, r.Status, r.Err)
		}
		m.mu.Unlock()
		if next != nil {
			next(r)
		}
	}
}

// life returns the record of a fiber. The caller holds mu.
func (m *Monitor) life(name string) *life {
	if m.fibers == nil {
		m.fibers = map[string]*life{}
	}
	if m.fibers[name] == nil {
		m.fibers[name] = &life{}
	}
	return m.fibers[name]
}

// Started records the result of Start for the fiber of that name. Only a fiber that was started must end.
func (m *Monitor) Started(name string, h flow.Handle, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.life(name).handle = h
	} else if m.life(name).ends > 0 {
		m.Errorf("F2: %s was refused and has ended: %v", name, err)
	}
}

// Check checks that every started fiber has ended once and that its handle agrees with its callback. Call it at the end
// of the test.
func (m *Monitor) Check() {
	m.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, l := range m.fibers {
		if l.handle == (flow.Handle{}) {
			continue
		}
		if l.ends != 1 || l.handle.Status() != l.result.Status || l.handle.Err() != l.result.Err ||
			l.handle != l.result.Handle {
			m.Errorf("F2: %s: %d callbacks, the last with %v (%v), its handle says %v (%v)", name, l.ends, l.result.Status,
				l.result.Err, l.handle.Status(), l.handle.Err())
		}
	}
}
