package executor

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/shard"
)

// fakeGroup is a group whose slots have fences.
type fakeGroup struct {
	layout shard.Layout
	closed map[int]error
}

func (g *fakeGroup) Layout() shard.Layout { return g.layout }

func (g *fakeGroup) Fence(slot int) error { return g.closed[slot] }

func (g *fakeGroup) FenceOf(namespace string, uid types.UID) error {
	return g.Fence(g.layout.SlotOf(namespace, uid))
}

// TestOwnership: work starts only in gained slots. Each request is checked against the fences of the process and of its
// slot.
func TestOwnership(t *testing.T) {
	t.Parallel()
	if _, err := newOwnership(&fakeGroup{layout: shard.Layout{Slots: 2, By: shard.UID}}, nil, call.Policy{}); err == nil {
		t.Error("a group that does not share by namespace is accepted")
	}
	g := &fakeGroup{layout: shard.Layout{Slots: 2, By: shard.Namespace}, closed: make(map[int]error)}
	here, there := "namespace-0", ""
	for i := 1; there == ""; i++ {
		if name := fmt.Sprint("namespace-", i); g.layout.SlotOf(name, "") != g.layout.SlotOf(here, "") {
			there = name
		}
	}
	var process error
	o, err := newOwnership(g, func() error { return process }, call.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	o.base = t.Context()
	if o.holds(here) || !o.isPartial() {
		t.Error("a namespace is held before its slot is gained")
	}
	o.slots.Gain(g.layout.Set(o.slotOf(here)))
	tenure, entered := o.enter(here)
	if !entered || tenure.Stay.Err() != nil || o.holds(there) {
		t.Error("not exactly the namespaces of the gained slot are held")
	}
	if _, entered := o.enter(there); entered {
		t.Error("work starts in a slot that is not here")
	}

	check := o.check()
	errClosed := errors.New("closed")
	for _, step := range []struct {
		reason        string
		process, slot error
		want          error
	}{
		{"both open", nil, nil, nil},
		{"the fence of the process", errClosed, nil, errClosed},
		{"the fence of the slot", nil, errClosed, errClosed},
	} {
		process, g.closed[o.slotOf(here)] = step.process, step.slot
		if err := check(here); !errors.Is(err, step.want) {
			t.Errorf("%s: %v", step.reason, err)
		}
		if err := o.policyOf(here).Fence(); !errors.Is(err, step.want) || err != nil && !errors.Is(err, webhook.ErrFenced) {
			t.Errorf("%s, of a request: %v", step.reason, err)
		}
		if err := check(there); !errors.Is(err, step.process) {
			t.Errorf("%s, in another slot: %v", step.reason, err)
		}
	}

	drain := o.slots.Lose(g.layout.Set(o.slotOf(here)))
	if tenure.Stay.Err() == nil || tenure.Context.Err() != nil || o.holds(here) {
		t.Error("a leaving slot admits work, or interrupts it at once")
	}
	o.leave(here)
	quiet := shard.Set{}
	drain.Wait(t.Context(), nil, func(slots shard.Set) { quiet = slots })
	if !quiet.Has(here, "") || !errors.Is(context.Cause(tenure.Context), errMoved) {
		t.Errorf("slots %s are quiet, and the work ends with %v", quiet, context.Cause(tenure.Context))
	}
}

// TestGainedSlots: slots are taken once, and additions give one token.
func TestGainedSlots(t *testing.T) {
	t.Parallel()
	layout := shard.Layout{Slots: 3}
	g := gainedSlots{added: make(chan struct{}, 1)}
	g.add(layout.Set(0))
	g.add(layout.Set(2))
	<-g.added
	if got := g.take(); got.String() != layout.Set(0, 2).String() || !g.take().IsEmpty() {
		t.Errorf("taken are %s", got)
	}
}
