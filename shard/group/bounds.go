package group

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/shard"
)

// The boundaries of the slots change in steps. A step moves the boundaries between some adjacent slots. These slots
// have no target, so their holders release them. When none has a holder, the boundaries move, and the slots get targets
// again. The boundaries of a held slot therefore never change, and members with older boundaries agree about it.

// wireBounds is the encoding of boundaries. Starts and Goal are hexadecimal hashes, separated by commas.
type wireBounds struct {
	Version int64  `json:"version"` // 0: equal ranges, and there are no Starts
	Starts  string `json:"starts,omitempty"`
	Goal    string `json:"goal,omitempty"` // see record.goal
}

// encodeBounds returns the encoding of the boundaries of a layout, and of a goal. It returns nil if there is no goal
// and the ranges are equal.
func encodeBounds(l, goal shard.Layout) *wireBounds {
	w := wireBounds{Version: l.Version()}
	if w.Version > 0 {
		w.Starts = encodeStarts(l)
	}
	if goal != (shard.Layout{}) {
		w.Goal = encodeStarts(goal)
	}
	if w == (wireBounds{}) {
		return nil
	}
	return &w
}

func encodeStarts(l shard.Layout) string {
	var texts []string
	for _, start := range l.Starts() {
		texts = append(texts, strconv.FormatUint(start, 16))
	}
	return strings.Join(texts, ",")
}

// decode returns the layout with the boundaries, and the goal. It returns l itself, and no goal, for nil.
func (w *wireBounds) decode(l shard.Layout) (layout, goal shard.Layout, err error) {
	if w == nil {
		return l, goal, nil
	}
	if w.Version != 0 || w.Starts != "" {
		if layout, err = decodeStarts(l, w.Version, w.Starts); err != nil {
			return l, goal, err
		}
	} else {
		layout = l
	}
	if w.Goal != "" {
		goal, err = decodeStarts(l, 1, w.Goal)
	} else if w.Starts == "" {
		err = fmt.Errorf("it has neither boundaries nor a goal")
	}
	return layout, goal, err
}

func decodeStarts(l shard.Layout, version int64, text string) (shard.Layout, error) {
	var starts []uint64
	for part := range strings.SplitSeq(text, ",") {
		start, err := strconv.ParseUint(part, 16, 64)
		if err != nil {
			return l, fmt.Errorf("%q is no hash", part)
		}
		starts = append(starts, start)
	}
	return l.WithStarts(version, starts)
}

// equalRanges returns the layout with equal ranges.
func equalRanges(l shard.Layout) shard.Layout { return shard.Layout{By: l.By, Slots: l.Len()} }

// sameDivision reports whether layouts differ in their boundaries at most. Members of a group need that.
func sameDivision(a, b shard.Layout) bool { return a.By == b.By && a.Len() == b.Len() }

// fits reports whether the slots have the ranges that the record says.
func (r *record) fits(slots shard.Set) bool {
	return sameDivision(slots.Layout(), r.layout) && slots.In(r.layout).Len() == slots.Len()
}

// moveBoundaries performs the steps whose slots have no holder. It returns the slots of the next step, which must not
// have a target. Without a further step it removes the goal.
func (r *record) moveBoundaries() (between shard.Set) {
	for r.goal != (shard.Layout{}) {
		starts, first, end := step(r.layout.Starts(), r.goal.Starts())
		if starts == nil {
			r.goal = shard.Layout{}
			break
		}
		between, free := r.layout.Set(), true
		for i := first; i < end; i++ {
			between, free = between.Union(r.layout.Set(i)), free && r.slots[i].holder == ""
		}
		if !free {
			return between
		}
		// With the revision as the version, it never repeats, even if the ranges were equal in between.
		next, err := r.layout.WithStarts(max(r.rev, r.layout.Version())+1, starts)
		if err != nil { // decode and plan check the goal
			r.goal = shard.Layout{}
			break
		}
		r.layout = next
	}
	return r.layout.Set()
}

// between returns the slots of the next step of the boundaries.
func (r *record) between() shard.Set { return r.clone().moveBoundaries() }

// stepShare is the part of the slots that a step may affect: one of so many.
const stepShare = 8

// step returns the boundaries after the next step from starts to goal, and the slots that it affects. starts is nil if
// there is none. Boundaries that grow move first, the greatest one first, and then those that shrink, the least one
// first. Each is moved only once, since its neighbor is not in its way.
func step(starts, goal []uint64) (next []uint64, first, end int) {
	from := -1 // the boundary to move
	for i := len(starts) - 1; i > 0 && from < 0; i-- {
		if goal[i] > starts[i] {
			from = i
		}
	}
	for i := 1; i < len(starts) && from < 0; i++ {
		if goal[i] < starts[i] {
			from = i
		}
	}
	if from < 0 {
		return nil, 0, 0
	}
	// Boundaries from to to, inclusively, move to their goals, if they stay between those beside them.
	to := from
	most := max(len(starts)/stepShare, 2) - 1
	for {
		switch {
		case to-from+1 >= most:
		case from > 1 && goal[from-1] != starts[from-1] && goal[from-1] >= starts[from-2]:
			from--
			continue
		case to < len(starts)-1 && goal[to+1] != starts[to+1] && (to+2 == len(starts) || goal[to+1] <= starts[to+2]):
			to++
			continue
		}
		break
	}
	next = append([]uint64(nil), starts...)
	copy(next[from:to+1], goal[from:to+1])
	return next, from - 1, to + 1
}
