package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/shard"
)

// fiberDesk is a fiberSet whose fibers wait until they are released or canceled.
type fiberDesk struct {
	*fiberSet
	t       *testing.T
	log     strings.Builder
	engine  *flow.Engine
	release chan error // the outcome of one fiber
}

func newFiberDesk(t *testing.T, slots *handover.Slots) *fiberDesk {
	d := &fiberDesk{t: t, engine: flow.NewEngine(flow.EngineOptions{}), release: make(chan error)}
	d.fiberSet = &fiberSet{slots: slots, log: slog.New(slog.NewTextHandler(&d.log, nil))}
	return d
}

// begin makes f the fiber of k. The returned function starts it.
func (d *fiberDesk) begin(k Key, f *fiber) (former replaced, begin func() flow.Handle) {
	d.t.Helper()
	former, ok := d.add(k, f)
	if !ok {
		d.t.Fatal("the slot is not held")
	}
	return former, func() flow.Handle {
		fl := flow.New("wait", flow.Step("only", flow.Do(func(ctx context.Context, _ *struct{}) error {
			select {
			case err := <-d.release:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})))
		h, err := fl.Start(d.t.Context(), d.engine, &struct{}{}, flow.StartOptions{
			Key: k.String(), Mode: flow.Preempt, Reported: true, OnEnd: func(res flow.Result) {
				stopped := errors.Is(res.Err, errObjectGone) || errors.Is(res.Err, flow.ErrInterrupted)
				d.ended(k, f, res, nil, !stopped)
				d.fiberSet.release(f)
			},
		})
		if err != nil {
			d.t.Fatal(err)
		}
		return h
	}
}

func (d *fiberDesk) start(k Key, f *fiber) {
	d.t.Helper()
	former, begin := d.begin(k, f)
	d.started(k, f, former, begin())
	synctest.Wait()
}

// TestFiberOutcomes: the outcome of a fiber is kept until a reconciliation handles it. A failure that no reconciliation
// will handle is logged.
func TestFiberOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFiberDesk(t, nil)
		defer d.engine.Close(context.Background())
		k := key("a", 1)
		d.start(k, &fiber{uid: "1"})
		if f := d.find(k, "1", false); f == nil || f.ended || !f.started {
			t.Fatalf("it is %+v", f)
		}
		if d.find(k, "2", false) != nil || d.find(k, "1", true) != nil || d.snapshot(key("a", 2)) != nil {
			t.Error("the fiber of another object is found")
		}
		if d.repeat(k, "1") {
			t.Error("the fiber does not read changes")
		}
		d.release <- errors.New("failed")
		synctest.Wait()
		f := d.find(k, "1", false)
		if f == nil || !f.ended || !f.failed || d.snapshot(k) != nil {
			t.Fatalf("after its end, it is %+v", f)
		}
		if d.log.Len() > 0 {
			t.Errorf("the log says %s", &d.log)
		}
		d.start(k, &fiber{uid: "1", changed: func(context.Context) bool { return false }})
		if !strings.Contains(d.log.String(), "an obsolete fiber failed") {
			t.Errorf("the log says %q about a failure that nothing handles", &d.log)
		}
		if !d.repeat(k, "1") || !d.find(k, "1", false).missedEvent {
			t.Error("no further fiber may start")
		}
		d.release <- nil
		synctest.Wait()
		f = d.find(k, "1", false)
		d.forget(k, flow.Handle{})
		if d.find(k, "1", false) == nil {
			t.Error("another handle removes the outcome")
		}
		if d.forget(k, f.handle); d.find(k, "1", false) != nil {
			t.Error("the outcome is not removed")
		}
		d.halt()
	})
}

// TestFiberEnds: fibers end when their object is deleted, their slot leaves, or the controller stops. This also holds
// for a fiber that is being started.
func TestFiberEnds(t *testing.T) {
	t.Parallel()
	moved := func(h flow.Handle) { h.Cancel(errMoved) }
	for _, tc := range []struct {
		reason string
		end    func(d *fiberDesk, slots shard.Set)
		cause  error
	}{
		{"deleted", func(d *fiberDesk, _ shard.Set) { d.cancel(key("a", 1)) }, errObjectGone},
		{"slot leaves", func(d *fiberDesk, s shard.Set) { d.move(s, moved) }, flow.ErrMoved},
	} {
		for _, early := range []bool{false, true} {
			t.Run(tc.reason+map[bool]string{true: ", while it is started"}[early], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					layout := shard.Layout{Slots: 2}
					slots := handover.New(layout, nil, nil)
					slots.Gain(layout.Set(0, 1))
					d := newFiberDesk(t, slots)
					defer d.engine.Close(context.Background())
					one, other := key("a", 1), key("a", 2)
					d.start(other, &fiber{slot: 1})
					f := &fiber{slot: 0}
					former, begin := d.begin(one, f)
					if early {
						tc.end(d, layout.Set(0))
					}
					h := begin()
					d.started(one, f, former, h)
					synctest.Wait()
					if !early {
						tc.end(d, layout.Set(0))
						synctest.Wait()
					}
					if h.Status() == flow.Running || !errors.Is(h.Err(), tc.cause) {
						t.Errorf("its status is %v, with %v", h.Status(), h.Err())
					}
					if d.find(one, "", false) != nil {
						t.Error("the ended fiber is still the fiber of its object")
					}
					if f := d.snapshot(other); f == nil || f.handle.Err() != nil {
						t.Errorf("the other fiber is %+v", f)
					}
					slots.Lose(layout.Set(0)).Wait(t.Context(), nil, func(shard.Set) {}) // the fiber is not counted any more
					d.halt()
					if d.snapshot(other) != nil {
						t.Error("a fiber runs after halt")
					}
				})
			})
		}
	}
}

// TestFiberAbandoned: a fiber that cannot be started leaves the previous one in place.
func TestFiberAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFiberDesk(t, nil)
		defer d.engine.Close(context.Background())
		k := key("a", 1)
		f := &fiber{uid: "1"}
		former, _ := d.begin(k, f)
		d.abandon(k, f, former)
		if d.find(k, "1", false) != nil {
			t.Error("the abandoned fiber is the fiber of its object")
		}
		d.start(k, &fiber{uid: "1", generation: 1})
		f = &fiber{uid: "1", generation: 2}
		former, _ = d.begin(k, f)
		d.abandon(k, f, former)
		if f := d.find(k, "1", false); f == nil || f.generation != 1 {
			t.Errorf("the fiber of the object is %+v", f)
		}
		d.halt()
	})
}
