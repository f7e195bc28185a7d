package schedule

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

// injector holds the faults of a plan. Each happens once. Its methods need the lock of the recorder.
type injector struct {
	faults  []engine.Fault
	reached []bool
	gates   *gates
	doomed  bool           // the next write of the subject kills it
	kill    func()         // kills the processes of the subject
	since   map[int]string // resource versions after the changes Fault.Since
	until   time.Time      // the end of the last fault
}

func newInjector(p engine.Plan, g *gates) *injector {
	return &injector{faults: p.Faults, reached: make([]bool, len(p.Faults)), gates: g, since: map[int]string{}}
}

// change plays the faults at a change of an object, and describes them. version is the resource version of the object.
func (i *injector) change(m engine.Moment, version string) (text string) {
	for n, f := range i.faults {
		if f.Kind == engine.Stale && f.Since == m && i.since[n] == "" {
			i.since[n] = version
		}
		if i.reached[n] || f.At != m || !f.Kind.AtChange() {
			continue
		}
		if f.Kind == engine.Stale {
			if i.since[n] == "" {
				continue
			}
			i.happens(n)
			i.gates.rewind(m.Kind(), i.since[n], time.Duration(f.For))
			i.kill()
			text = f.String()
			continue
		}
		i.happens(n)
		i.gates.close(m.Kind(), time.Duration(f.For), f.Kind == engine.Expired)
		if f.Kind == engine.LateCrash {
			i.doomed = true
		}
		text = f.String()
	}
	return text
}

// write returns the faults at a write of the subject.
func (i *injector) write(m engine.Moment) []engine.Fault {
	var out []engine.Fault
	if i.doomed {
		i.doomed = false
		out = append(out, engine.Fault{Kind: engine.CrashBefore, At: m})
	}
	for n, f := range i.faults {
		if !i.reached[n] && f.At == m && !f.Kind.AtChange() {
			i.happens(n)
			out = append(out, f)
		}
	}
	return out
}

func (i *injector) happens(n int) {
	i.reached[n] = true
	if end := time.Now().Add(time.Duration(i.faults[n].For)); end.After(i.until) {
		i.until = end
	}
}

// write returns the faults at a write of the subject.
func (r *recorder) write(m engine.Moment) []engine.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults.write(m)
}
