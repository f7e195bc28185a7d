package console

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead-io/fairlead/flow"
)

// fibers are the live fibers by flow and place.
type fiberCounts struct {
	total int
	flows []flowRow
}

type flowRow struct {
	Name            string
	Live            int
	Running, Parked int
	Steps           []stepRow
	Oldest          time.Time
}

type stepRow struct {
	Path     string
	Why      map[string]int
	Count    int
	Running  int
	Oldest   flow.Info
	Fraction int // of the flow's fibers, in percent
}

// all yields the live fibers of the program.
func (c *console) all() iter.Seq[flow.Info] {
	return func(yield func(flow.Info) bool) {
		for i := range c.Runtime.Fibers() {
			if !yield(i) {
				return
			}
		}
		if c.Operations == nil {
			return
		}
		for i := range c.Operations.Executor.Flows().Fibers() {
			if !yield(i) {
				return
			}
		}
	}
}

// fibers counts the live fibers.
func (c *console) fibers() fiberCounts {
	return shared(c.shown, "fibers", func() fiberCounts {
		type place struct{ flow, path string }
		steps := map[place]*stepRow{}
		flows := map[string]*flowRow{}
		counts := fiberCounts{}
		for i := range c.all() {
			counts.total++
			f := flows[i.Flow]
			if f == nil {
				f = &flowRow{Name: i.Flow, Oldest: i.Began}
				flows[i.Flow] = f
			}
			f.Live++
			if i.Began.Before(f.Oldest) {
				f.Oldest = i.Began
			}
			s := steps[place{i.Flow, i.Path}]
			if s == nil {
				s = &stepRow{Path: i.Path, Why: map[string]int{}, Oldest: i}
				steps[place{i.Flow, i.Path}] = s
			}
			s.Count++
			if i.Since.Before(s.Oldest.Since) {
				s.Oldest = i
			}
			if i.Status == flow.Parked {
				f.Parked++
				s.Why[i.Why]++
			} else {
				f.Running++
				s.Running++
			}
		}
		for at, s := range steps {
			f := flows[at.flow]
			s.Fraction = max(1, 100*s.Count/f.Live)
			f.Steps = append(f.Steps, *s)
		}
		for _, f := range flows {
			slices.SortFunc(f.Steps, func(a, b stepRow) int {
				return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Path, b.Path))
			})
			counts.flows = append(counts.flows, *f)
		}
		slices.SortFunc(counts.flows, func(a, b flowRow) int {
			return cmp.Or(cmp.Compare(b.Live, a.Live), cmp.Compare(a.Name, b.Name))
		})
		return counts
	})
}

func (c *console) flows(context.Context, *reader, *http.Request) (any, error) {
	counts := c.fibers()
	return map[string]any{"Total": counts.total, "Flows": counts.flows}, nil
}

// maxFibers is how many fibers a page shows.
const maxFibers = 100

// flowData is one flow, with some of its fibers: those that have been at their place for longest.
type flowData struct {
	Flow   flowRow
	Step   string
	Fibers []flow.Info
	Total  int
}

func (c *console) flow(_ context.Context, _ *reader, r *http.Request) (any, error) {
	name, step := r.PathValue("flow"), r.URL.Query().Get("step")
	d := flowData{Step: step, Flow: flowRow{Name: name}}
	for _, f := range c.fibers().flows {
		if f.Name == name {
			d.Flow = f
		}
	}
	for i := range c.all() {
		if i.Flow != name || step != "" && i.Path != step {
			continue
		}
		d.Total++
		at, _ := slices.BinarySearchFunc(d.Fibers, i, func(a, b flow.Info) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
		})
		if at < maxFibers {
			d.Fibers = slices.Insert(d.Fibers, at, i)
			d.Fibers = d.Fibers[:min(len(d.Fibers), maxFibers)]
		}
	}
	if d.Total == 0 && d.Flow.Live == 0 {
		return nil, errNothing
	}
	return d, nil
}

func (c *console) fiber(_ context.Context, _ *reader, r *http.Request) (any, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, errNothing
	}
	name := r.URL.Query().Get("flow")
	for i := range c.all() {
		if i.ID == id && (name == "" || i.Flow == name) {
			return i, nil
		}
	}
	return nil, errNothing
}
