package console

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead-io/fairlead/internal/outline"
)

// graphNode is a part of the graph of a flow: a step with its fibers, or a group of parts.
type graphNode struct {
	Group string // name of a group; empty: a step
	Nodes []*graphNode
	Count int // of the fibers in a group

	outline.Step
	Name    string // of the step within its group
	Here    bool   // its fibers are listed on the page
	At      *stepRow
	Forked  []forkedRow
	Strange bool // unknown in the definition: fibers of another version, or not yet begun
}

// forkedRow counts the live children that fibers at a step have forked, for one flow.
type forkedRow struct {
	Flow  string
	Count int
}

// Moves reports whether the step can lead to other steps than the next one.
func (n *graphNode) Moves() bool { return n.OnError != "" || len(n.To) > 0 }

// graphOf groups the steps of a definition and adds their fibers. Steps that are not in the definition come first.
func graphOf(d outline.Flow, steps []stepRow, forked map[string]map[string]int, here string) []*graphNode {
	root := &graphNode{}
	at := map[string]*stepRow{}
	for i := range steps {
		at[steps[i].Step] = &steps[i]
	}
	for _, s := range d.Steps {
		n := &graphNode{Step: s, At: at[s.Path], Forked: forkedRows(forked[s.Path])}
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

// add inserts a step at its path. The steps of a group are consecutive.
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

// definitions remembers the flows that had live fibers, so that a page can show a flow without any.
type definitions struct {
	mu  sync.Mutex
	all map[string]outline.Flow
}

// maxDefinitions bounds the remembered flows.
const maxDefinitions = 256

// add remembers a flow.
func (d *definitions) add(one outline.Flow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[string]outline.Flow{}
	}
	if _, known := d.all[one.Name]; known || len(d.all) < maxDefinitions {
		d.all[one.Name] = one
	}
}

// of returns the remembered definition of a flow.
func (d *definitions) of(name string) (outline.Flow, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, ok := d.all[name]
	return one, ok
}

// names returns the names of the remembered flows.
func (d *definitions) names() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.all {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
