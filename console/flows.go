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
	"github.com/fairlead-io/fairlead/internal/pages"
)

// fiberCounts counts the live fibers by flow and step.
type fiberCounts struct {
	total int
	flows []flowRow
}

type flowRow struct {
	Name            string
	Live            int
	Running, Parked int
	Steps           []stepRow // with fibers
	Oldest          time.Time

	forked map[string]map[string]int // by step and flow of the children: live children
	newest flow.Info
}

type stepRow struct {
	Path     string // flow and step
	Step     string
	Why      map[string]int
	Count    int
	Running  int
	Parked   int
	Oldest   flow.Info
	Fraction int // of the flow's fibers, in percent
}

// placeOf returns the flow and step of a fiber, regardless of its parent.
func placeOf(i *flow.Info) string {
	if i.Step == "" {
		return i.Flow
	}
	return i.Flow + "/" + i.Step
}

// flows are the pages of the fibers: all flows, one flow, and one fiber.
type flows struct {
	engines []func() iter.Seq[flow.Info] // yield the live fibers
	recent  pages.Recent[fiberCounts]
	defined definitions
}

func (p *flows) pages() []pages.Page {
	return []pages.Page{
		{Name: pages.PageFlows, Title: "Flows", Menu: true, Data: p.all},
		{Name: "flow", Title: "Flow", Path: "flows/{flow...}", Data: p.flow},
		{Name: "fiber", Title: "Fiber", Path: "fibers/{id}", Data: p.fiber},
	}
}

// fibers yields the live fibers of the program with the number of their engine.
func (p *flows) fibers() iter.Seq2[int, flow.Info] {
	return func(yield func(int, flow.Info) bool) {
		for engine, fibers := range p.engines {
			for i := range fibers() {
				if !yield(engine, i) {
					return
				}
			}
		}
	}
}

// counts returns the numbers of live fibers.
func (p *flows) counts() fiberCounts { return p.recent.Get(p.count) }

func (p *flows) count() fiberCounts {
	type place struct{ flow, path string }
	type id struct {
		engine int
		fiber  uint64
	}
	steps := map[place]*stepRow{}
	flows := map[string]*flowRow{}
	parents := map[id]flow.Info{} // of forks; a fiber precedes its children
	counts := fiberCounts{}
	for engine, i := range p.fibers() {
		counts.total++
		f := flows[i.Flow]
		if f == nil {
			f = &flowRow{Name: i.Flow, Oldest: i.Began, forked: map[string]map[string]int{}}
			flows[i.Flow] = f
		}
		f.Live++
		f.newest = i
		if i.Began.Before(f.Oldest) {
			f.Oldest = i.Began
		}
		at := place{i.Flow, placeOf(&i)}
		s := steps[at]
		if s == nil {
			s = &stepRow{Path: at.path, Step: i.Step, Why: map[string]int{}, Oldest: i}
			steps[at] = s
		}
		s.Count++
		if i.Since.Before(s.Oldest.Since) {
			s.Oldest = i
		}
		if i.Status == flow.Parked {
			f.Parked++
			s.Parked++
			s.Why[i.Why]++
		} else {
			f.Running++
			s.Running++
		}
		if i.Children > 0 {
			parents[id{engine, i.ID}] = i
		}
		if by, ok := parents[id{engine, i.Parent}]; ok {
			under := flows[by.Flow].forked
			if under[by.Step] == nil {
				under[by.Step] = map[string]int{}
			}
			under[by.Step][i.Flow]++
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
		p.defined.add(f.newest.Definition())
		counts.flows = append(counts.flows, *f)
	}
	slices.SortFunc(counts.flows, func(a, b flowRow) int {
		return cmp.Or(cmp.Compare(b.Live, a.Live), cmp.Compare(a.Name, b.Name))
	})
	return counts
}

func (p *flows) all(context.Context, *pages.Reader, *http.Request) (any, error) {
	counts := p.counts()
	var idle []string // known flows without live fibers
	for _, name := range p.defined.names() {
		if !slices.ContainsFunc(counts.flows, func(f flowRow) bool { return f.Name == name }) {
			idle = append(idle, name)
		}
	}
	return map[string]any{"Total": counts.total, "Flows": counts.flows, "Idle": idle}, nil
}

// maxFibers bounds the fibers on a page.
const maxFibers = 100

// flowData is one flow, with the fibers that have been at their step for longest.
type flowData struct {
	Flow   flowRow
	Graph  []*graphNode
	Step   string
	Fibers []flow.Info
	Total  int
}

func (p *flows) flow(_ context.Context, _ *pages.Reader, r *http.Request) (any, error) {
	name, step := r.PathValue("flow"), r.URL.Query().Get("step")
	d := flowData{Step: step, Flow: flowRow{Name: name}}
	for _, f := range p.counts().flows {
		if f.Name == name {
			d.Flow = f
		}
	}
	definition, known := p.defined.of(name)
	if !known && d.Flow.Live == 0 {
		return nil, pages.ErrNothing
	}
	d.Graph = graphOf(definition, d.Flow.Steps, d.Flow.forked, step)
	for _, i := range p.fibers() {
		if i.Flow != name || step != "" && placeOf(&i) != step {
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
	return d, nil
}

func (p *flows) fiber(_ context.Context, _ *pages.Reader, r *http.Request) (any, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, pages.ErrNothing
	}
	name := r.URL.Query().Get("flow")
	for _, i := range p.fibers() {
		if i.ID == id && (name == "" || i.Flow == name) {
			return i, nil
		}
	}
	return nil, pages.ErrNothing
}
