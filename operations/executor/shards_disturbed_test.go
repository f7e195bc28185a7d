package executor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/shard"
)

// TestSharedDisturbed plays random schedules of replicas that share operations. Replicas join, leave, are killed,
// paused and cut off, and slots move between them. In half of the schedules a third of all requests fails. Every
// operation ends once, and every try is made once, or again with the same key if it was interrupted. No replica calls
// for a slot that it has handed over, and operations with the same lock take turns.
func TestSharedDisturbed(t *testing.T) {
	t.Parallel()
	seed.Play(t, 12, func(t *testing.T, s uint64) {
		t.Parallel()
		sharedDisturbed(t, s)
	})
}

func sharedDisturbed(t *testing.T, s uint64) {
	rnd := seed.Rand(s, "schedule")
	w := newWorld(t, s, seed.Rand(s, "world"))
	w.faulty = rnd.IntN(2) == 0
	gentle := rnd.IntN(3) == 0 // without interruptions, so without repeats
	for _, namespace := range w.namespaces {
		for name := range tries {
			w.webhook(namespace, name, func(s *v1alpha1.WebhookSpec) {
				switch name {
				case "slow":
					s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: webhook.MinInterval}
				case "back":
					s.Mode = v1alpha1.ModeAsyncCallback
				}
			})
		}
	}
	defer w.replicas.Wait()
	defer func() {
		for _, m := range w.members {
			m.stop()
		}
	}()
	w.join()
	w.grant(w.layout.All(), w.members[0])
	schedulers := map[string]*operations.Scheduler{}
	for _, namespace := range w.namespaces {
		schedulers[namespace] = w.scheduler(namespace)
	}
	var ops []*v1alpha1.Operation
	schedule := func() {
		namespace := w.namespaces[rnd.IntN(len(w.namespaces))]
		request := randomRequest(rnd, fmt.Sprint("app", len(ops)))
		if rnd.IntN(4) == 0 {
			request.Webhooks = append(request.Webhooks, "back")
		}
		op, err := schedulers[namespace].Schedule(w.ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	for range 10 {
		schedule()
	}
	for range 8 + rnd.IntN(8) {
		w.disturb(gentle)
		for range rnd.IntN(4) {
			schedule()
		}
		if rnd.IntN(4) == 0 {
			op := ops[rnd.IntN(len(ops))]
			if _, err := schedulers[op.Namespace].Cancel(w.ctx, operationbed.ResourceOf(op), op.EffectiveID()); err != nil &&
				!errors.Is(err, operations.ErrEnded) {
				t.Fatal(err)
			}
		}
		pauseOf(w.ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
	}
	w.settle()
	all := make([]ended, len(ops))
	deadline, _ := w.ctx.Deadline()
	patience, cancel := context.WithDeadline(w.ctx, deadline.Add(-10*time.Second)) // keep the replicas for inspection
	defer cancel()
	for i, op := range ops {
		var got *v1alpha1.Operation
		for got == nil || !got.Terminal() {
			var err error
			if got, err = schedulers[op.Namespace].Get(patience, operationbed.ResourceOf(op)); err != nil {
				t.Fatalf("FAIRLEAD_SEED=%d: %s/%s does not end: %v\n%s", s, op.Namespace, op.Name, err, w.describe(op))
			}
			pauseOf(patience, 20*time.Millisecond)
		}
		all[i].Operation = got
	}
	for _, m := range slices.Clone(w.members) { // every disturbance ends
		m.stop()
	}
	w.outside.back.Wait()
	w.check(all)
}

// describe returns what is known about an operation that does not end.
func (w *world) describe(op *v1alpha1.Operation) string {
	u, err := w.server.Object(v1alpha1.OperationsResource, op.Namespace, op.Name)
	text := fmt.Sprint(u, err)
	w.mu.Lock()
	holder := w.holders[w.layout.SlotOf(op.Namespace, "")]
	w.mu.Unlock()
	if holder == nil {
		return text + "\nnobody holds its slot"
	}
	_, known := holder.operations.Get(store.Key{Namespace: op.Namespace, Name: op.Name})
	held, _ := holder.operations.Held()
	text += fmt.Sprintf("\nin the store of %s: %t; it holds %s of %s; %+v", holder.name, known, held,
		holder.sharding.Held(), holder.operations.Statuses())
	text += "\nslots: " + holder.executor.Tenures()
	for fiber := range holder.executor.Flows().Fibers() {
		if strings.HasSuffix(fiber.Key, op.Name) {
			text += fmt.Sprintf("\nin %s: %+v", holder.name, fiber)
		}
	}
	return text
}

// check reports what is wrong with the ends of operations.
func (w *world) check(all []ended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, e := range all {
		all[i].called = w.outside.counts(e.EffectiveID())
		slot := w.layout.SlotOf(e.Namespace, "")
		cuts := w.cuts[slot]
		problems := ended{e.Operation, maps.Clone(all[i].called)}.check(cuts, w.grants[slot]-1)
		if n := w.reported[e.EffectiveID()]; n > 1 {
			problems = append(problems, fmt.Sprintf("its end was reported %d times", n))
		}
		if len(problems) > 0 {
			w.t.Errorf("FAIRLEAD_SEED=%d: %s/%s, cut off %d times: %s\n%+v", w.seed, e.Namespace, e.Name, cuts,
				strings.Join(problems, "\n"), e.Status)
		}
	}
	for _, e := range all {
		for _, other := range all {
			began, its := w.outside.began[e.EffectiveID()], w.outside.began[other.EffectiveID()]
			if e.Namespace == other.Namespace && !began.IsZero() && e.excludes(other) && its.After(began) &&
				its.Before(e.Status.FinishedAt.Time) {
				w.t.Errorf("FAIRLEAD_SEED=%d: %s began before %s, which has the same lock, had ended", w.seed, other.Name, e.Name)
			}
		}
	}
}

// disturb changes the state of one replica at random.
func (w *world) disturb(gentle bool) {
	m := w.any()
	if m.losing != nil { // work of the slots it lost last may still run
		select {
		case <-m.losing:
			m.losing = nil
		case <-w.ctx.Done():
			return
		}
	}
	choice := w.draw(9)
	if gentle {
		choice = w.draw(3)
	}
	switch choice {
	case 0:
		if len(w.members) < 4 {
			m = w.join()
		}
		w.rebalance(m, gentle)
	case 1:
		w.rebalance(m, gentle)
	case 2:
		if others := w.others(m); len(others) > 0 {
			w.hand(w.heldBy(m), m, gentle, others)
			w.remove(m)
			m.stop()
		}
	case 3:
		m.link.kill()
		w.lose(m)
		w.remove(m)
		if len(w.members) == 0 {
			w.join()
		}
		m.stop()
		w.spread()
	case 4, 5: // paused or cut off for so long that others take over
		undo := m.link.pause
		if choice == 5 {
			undo = m.link.part
		}
		end := undo()
		pauseOf(w.ctx, time.Duration(w.draw(40))*time.Millisecond)
		w.lose(m)
		if len(w.others(m)) == 0 {
			w.join()
		}
		w.spread(m)
		pauseOf(w.ctx, time.Duration(w.draw(60))*time.Millisecond)
		end()
		m.dropLost()
	case 6: // shorter than that
		end := m.link.pause()
		pauseOf(w.ctx, time.Duration(w.draw(80))*time.Millisecond)
		end()
	case 7:
		end := m.link.part()
		pauseOf(w.ctx, time.Duration(w.draw(80))*time.Millisecond)
		end()
	case 8: // it fails to renew in time, and is healthy otherwise
		w.lose(m)
		m.dropLost()
		w.spread()
	}
}

// settle gives every slot to a replica.
func (w *world) settle() {
	for _, m := range w.members {
		if m.losing != nil {
			<-m.losing
			m.losing = nil
		}
	}
	w.spread()
}

// heldBy returns the slots of a replica.
func (w *world) heldBy(m *member) shard.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.layout.Set()
	for slot, holder := range w.holders {
		if holder == m {
			held = held.Union(w.layout.Set(slot))
		}
	}
	return held
}

func (w *world) others(m *member) (others []*member) {
	for _, other := range w.members {
		if other != m && other.losing == nil {
			others = append(others, other)
		}
	}
	return others
}

func (w *world) remove(m *member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = slices.DeleteFunc(w.members, func(other *member) bool { return other == m })
}

// rebalance moves a random half of the slots of others to a replica.
func (w *world) rebalance(to *member, gentle bool) {
	if to.losing != nil {
		return
	}
	var moves sync.WaitGroup
	for _, from := range w.others(to) {
		some := w.layout.Set()
		for slot := range w.heldBy(from).Slots() {
			if w.draw(2) == 0 {
				some = some.Union(w.layout.Set(slot))
			}
		}
		moves.Go(func() { w.hand(some, from, gentle, []*member{to}) })
	}
	moves.Wait()
}

// hand moves slots in the order of a group. Participants lose them one after the other, each as soon as it is quiet.
// Only then do others gain them.
func (w *world) hand(slots shard.Set, from *member, gentle bool, to []*member) {
	if slots.IsEmpty() || len(to) == 0 {
		return
	}
	bound := time.Duration(w.draw(200)) * time.Millisecond
	if gentle {
		bound = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(w.ctx, bound, errors.New("the slot moves"))
	defer cancel()
	var mu sync.Mutex
	left := slots
	next := func(part shard.Set) {
		mu.Lock()
		part = left.Both(part)
		left = left.Minus(part)
		mu.Unlock()
		if part.IsEmpty() {
			return
		}
		from.sharding.Lose(ctx, part, nil)
		w.mu.Lock()
		for slot := range part.Slots() {
			delete(w.holders, slot)
			if from.lost[slot] = ctx.Err() != nil; from.lost[slot] {
				w.cuts[slot]++
			}
		}
		to := to[w.rnd.IntN(len(to))]
		w.mu.Unlock()
		w.grant(part, to)
	}
	var moves sync.WaitGroup
	from.executor.Lose(ctx, slots, func(part shard.Set) { moves.Go(func() { next(part) }) })
	moves.Wait()
	next(slots)
}

// grant gives free slots to a replica.
func (w *world) grant(slots shard.Set, to *member) {
	w.mu.Lock()
	for slot := range slots.Slots() {
		if w.holders[slot] != nil {
			w.t.Errorf("slot %d is held by %s", slot, w.holders[slot].name)
		}
		w.holders[slot] = to
		w.grants[slot]++
		to.lost[slot] = false
	}
	w.mu.Unlock()
	_ = to.sharding.Gain(w.ctx, slots)
	if err := to.executor.Gain(w.ctx, slots); err != nil {
		w.t.Error(err)
	}
}

// lose takes all slots from a replica at once.
func (w *world) lose(m *member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for slot, holder := range w.holders {
		if holder == m {
			delete(w.holders, slot)
			w.cuts[slot]++
			m.lost[slot] = true
		}
	}
}

// dropLost makes a replica notice that it has lost everything.
func (m *member) dropLost() {
	m.losing = make(chan struct{})
	ctx, cancel := context.WithCancelCause(m.w.ctx)
	cancel(errors.New("the slots were lost"))
	go func() { // which ends with the executor at the latest
		defer close(m.losing)
		m.executor.Lose(ctx, m.w.layout.All(), func(shard.Set) {})
		m.sharding.Lose(ctx, m.w.layout.All(), nil)
	}()
}

// spread gives the free slots to replicas other than those in but.
func (w *world) spread(but ...*member) {
	for slot := range w.layout.All().Slots() {
		w.mu.Lock()
		free := w.holders[slot] == nil
		var able []*member
		for _, m := range w.members {
			if m.losing == nil && !slices.Contains(but, m) {
				able = append(able, m)
			}
		}
		w.mu.Unlock()
		if free && len(able) > 0 {
			w.grant(w.layout.Set(slot), able[w.draw(len(able))])
		}
	}
}
