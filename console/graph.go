package console

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead-io/fairlead/flow"
)

// graphNode is a part of the picture of a flow: a step with those who are there, or a group of parts.
type graphNode struct {
	Group string // its name; empty: a step
	Nodes []*graphNode
	Count int // of the fibers in a group

	flow.StepDefinition
	Name    string // of the step within its group
	Here    bool   // it is the one whose fibers are listed
	At      *stepRow
	Forked  []forkedRow
	Strange bool // the definition does not have it: fibers of another version are there, or have not begun
}

// forkedRow are the live fibers of a flow that those at a step have forked.
type forkedRow struct {
	Flow  string
	Count int
}

// Moves tells whether the step leads elsewhere than to the next one.
func (n *graphNode) Moves() bool { return n.OnError != "" || len(n.To) > 0 }

// graphOf puts the steps of a definition into their groups, with what is known of each. Steps that it lacks come first.
func graphOf(d flow.Definition, steps []stepRow, forked map[string]map[string]int, here string) []*graphNode {
	root := &graphNode{}
	at := map[string]*stepRow{}
	for i := range steps {
		at[steps[i].Step] = &steps[i]
	}
	for _, s := range d.Steps {
		n := &graphNode{StepDefinition: s, At: at[s.Path], Forked: forkedRows(forked[s.Path])}
		delete(at, s.Path)
		if n.At == nil {
			n.At = &stepRow{Path: d.Name + "/" + s.Path, Step: s.Path}
		}
		n.Here = n.At.Path == here
		root.add(strings.Split(s.Path, "/"), n)
	}
	var strange []*graphNode
	for _, s := range at {
		n := &graphNode{Name: s.Step, At: s, Strange: true, Here: s.Path == here, Forked: forkedRows(forked[s.Step])}
		n.Path = s.Step
		strange = append(strange, n)
	}
	slices.SortFunc(strange, func(a, b *graphNode) int { return cmp.Compare(a.Path, b.Path) })
	return append(strange, root.Nodes...)
}

// add puts a step where its path says; the steps of a group come one after the other.
func (n *graphNode) add(path []string, step *graphNode) {
	n.Count += step.At.Count
	if len(path) == 1 {
		step.Name = path[0]
		n.Nodes = append(n.Nodes, step)
		return
	}
	if last := len(n.Nodes) - 1; last < 0 || n.Nodes[last].Group != path[0] {
		n.Nodes = append(n.Nodes, &graphNode{Group: path[0]})
	}
	n.Nodes[len(n.Nodes)-1].add(path[1:], step)
}

func forkedRows(counts map[string]int) (rows []forkedRow) {
	for name, n := range counts {
		rows = append(rows, forkedRow{name, n})
	}
	slices.SortFunc(rows, func(a, b forkedRow) int { return cmp.Compare(a.Flow, b.Flow) })
	return rows
}

// definitions are those of the flows that were seen alive, so that a page can show one that nobody is in at present.
type definitions struct {
	mu  sync.Mutex
	all map[string]flow.Definition
}

// maxDefinitions bounds them.
const maxDefinitions = 256

func (d *definitions) note(one flow.Definition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[string]flow.Definition{}
	}
	if _, known := d.all[one.Name]; known || len(d.all) < maxDefinitions {
		d.all[one.Name] = one
	}
}

func (d *definitions) of(name string) (flow.Definition, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.all[name]
	return one, ok
}

// names are those of all flows that were seen.
func (d *definitions) names() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.all {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
