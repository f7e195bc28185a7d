package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// world is the set of members of a group.
type world struct {
	*bench
	group string
	live  []*member // running members, which answer
	apart []*member // ended or stopped members, which do not
}

// make starts a process that has not joined the group yet.
func (w *world) make(ctx context.Context) (*member, error) {
	return newMember(ctx, task{
		Kubeconfig: w.cluster.KubeconfigPath(), Kind: w.o.kind, Group: w.group,
		Layout: w.o.layout, Namespaces: w.o.namespaces,
	})
}

// part moves the first live member to apart and returns it.
func (w *world) part() *member {
	m := w.live[0]
	w.live, w.apart = w.live[1:], append(w.apart, m)
	return m
}

// end kills the remaining members.
func (w *world) end() {
	for _, m := range slices.Concat(w.live, w.apart) {
		m.kill()
	}
}

// leave ends all members by SIGTERM.
func (w *world) leave() error {
	for _, m := range w.live {
		if err := m.signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for _, m := range w.live {
		if err := m.gone(w.o.limit); err != nil {
			return fmt.Errorf("cannot end a replica: %w", err)
		}
	}
	w.live = nil
	return nil
}

// all sends a command to the live members and returns their answers.
func (w *world) all(what string) ([]stats, error) {
	out := make([]stats, 0, len(w.live))
	for _, m := range w.live {
		s, err := m.ask(what)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// inSync waits until each slot has one holder among the live members, and all know the same boundaries. Then it waits
// until the holder's observer has each object of the slot and no other observer has any of it. With even, each member
// must also hold its share of the slots.
func (w *world) inSync(ctx context.Context, began time.Time, even bool) (slots, whole time.Duration, err error) {
	err = w.poll(ctx, func() (bool, error) {
		all, err := w.all("stats")
		if err != nil {
			return false, err
		}
		if !w.held(all, even) {
			return false, nil
		}
		if slots == 0 {
			slots = time.Since(began)
		}
		whole = time.Since(began)
		return w.observed(all)
	})
	return slots, whole, err
}

// balanced waits until the boundaries have not changed for stable and the members are in sync. It returns the time
// until the last change and the number of changes.
func (w *world) balanced(ctx context.Context, began time.Time) (last time.Duration, changes int64, err error) {
	at := time.Now()
	err = w.poll(ctx, func() (bool, error) {
		all, err := w.all("stats")
		if err != nil || !w.held(all, false) {
			return false, err
		}
		if all[0].Version != changes {
			at, changes, last = time.Now(), all[0].Version, time.Since(began)
		}
		if time.Since(at) < stable {
			return false, nil
		}
		return w.observed(all)
	})
	return last, changes, err
}

func (w *world) held(all []stats, even bool) bool {
	slots := w.o.layout.Len()
	holders := make([]int, slots)
	for _, s := range all {
		if even && len(s.Held) < slots/len(all) || s.Version != all[0].Version {
			return false
		}
		for _, slot := range s.Held {
			holders[slot]++
		}
	}
	return !slices.ContainsFunc(holders, func(n int) bool { return n != 1 })
}

func (w *world) observed(all []stats) (bool, error) {
	layout := w.o.layout
	if s := all[0]; s.Version > 0 {
		var err error
		if layout, err = layout.WithStarts(s.Version, s.Starts); err != nil {
			return false, err
		}
	}
	for _, s := range all {
		for unit, n := range s.Observed {
			want := 0
			if slices.Contains(s.Held, w.units.slot(unit, layout)) {
				want = w.expect[unit]
			}
			if n != int64(want) {
				return false, nil
			}
		}
	}
	return true, nil
}

// stable is much longer than the time from one step of the boundaries to the next.
const stable = 10 * time.Second

// poll calls fn until it returns true or an error.
func (w *world) poll(ctx context.Context, fn func() (bool, error)) error {
	limit := time.NewTimer(w.o.limit)
	defer limit.Stop()
	next := time.NewTicker(20 * time.Millisecond)
	defer next.Stop()
	for {
		if ok, err := fn(); ok || err != nil {
			return err
		}
		select {
		case <-next.C:
		case <-limit.C:
			return fmt.Errorf("cannot wait longer than %s", w.o.limit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
