package bubble

import (
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/simulate/internal/engine"
)

// injector holds the faults of a plan. Each happens once. Its methods need the lock of the recorder.
type injector struct {
	faults  []engine.Fault
	reached []bool
	gates   *gates
	doomed  bool // the next write of the subject kills it
}

func newInjector(p engine.Plan, g *gates) *injector {
	return &injector{faults: p.Faults, reached: make([]bool, len(p.Faults)), gates: g}
}

// change plays the faults at a change of an object, and describes them.
func (i *injector) change(m engine.Moment) (text string) {
	for n, f := range i.faults {
		if i.reached[n] || f.At != m || f.Kind != engine.Late && f.Kind != engine.LateCrash {
			continue
		}
		i.reached[n] = true
		i.gates.close(m.Kind(), time.Duration(f.For))
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
		if !i.reached[n] && f.At == m && f.Kind != engine.Late && f.Kind != engine.LateCrash {
			i.reached[n] = true
			out = append(out, f)
		}
	}
	return out
}

// pending reports whether a fault has not happened yet.
func (i *injector) pending() bool { return slices.Contains(i.reached, false) }

// write returns the faults at a write of the subject.
func (r *recorder) write(m engine.Moment) []engine.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults.write(m)
}

// reached reports which faults have happened.
func (r *recorder) reached() []bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.faults.reached)
}
