package executor

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/course/coursetest"
)

func newDraft() draft {
	return draft{
		key: store.Key{Namespace: "ns", Name: "a"}, party: fair.Party{Group: "ns"},
		wake: &news{}, stored: &stored{}, edit: &edit{},
	}
}

// TestAdopt: unsaved changes are applied to a newer state of the same request. They are dropped if that state is
// terminal or belongs to another request.
func TestAdopt(t *testing.T) {
	t.Parallel()
	change := func(op *v1alpha1.Operation) { op.Labels = map[string]string{"changed": "yes"} }
	tests := map[string]struct {
		reason   string
		newer    func(op *v1alpha1.Operation)
		changed  bool
		replaced bool
	}{
		"Newer": {
			"A newer state keeps the change.", func(op *v1alpha1.Operation) { op.ResourceVersion = "2" }, true,
			false,
		},
		"Terminal": {
			"The outcome is decided.",
			func(op *v1alpha1.Operation) { course.Finish(op, v1alpha1.PhaseSuccess, epoch)(op) }, false, false,
		},
		"Replaced": {
			"The change is about another request.", func(op *v1alpha1.Operation) { op.Spec.OperationID = "two" },
			false, true,
		},
		"Recreated": {"The change is about another object.", func(op *v1alpha1.Operation) { op.UID = "other" }, false, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := coursetest.Requested(func(op *v1alpha1.Operation) { op.ResourceVersion = "1" })
			course.Begin(epoch, coursetest.Version)(op)
			d := newDraft()
			d.adopt(op.DeepCopy())
			d.unrecorded = epoch
			d.apply(change)
			tc.newer(op)
			d.adopt(op)
			if changed := d.op.Labels["changed"] == "yes"; changed != tc.changed || changed != (len(d.unsaved) == 1) ||
				changed == d.unrecorded.IsZero() {
				t.Errorf("%s changed %t, %d unsaved changes, unrecorded since %s", tc.reason, changed, len(d.unsaved), d.unrecorded)
			}
			if d.replaced != tc.replaced || d.version != op.ResourceVersion {
				t.Errorf("%s replaced %t, version %s", tc.reason, d.replaced, d.version)
			}
		})
	}
}

// TestPay: a write is paid for once. A write that the share of the namespace does not cover waits for its turn,
// terminal states first. A refund restores the share, and a drain does not wait.
func TestPay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := store.New(store.Options{
			Resource: v1alpha1.OperationsResource, Kind: v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation),
			Namespaced: true,
		})
		defer st.Close()
		budget, _ := newBudgets(Budget{Writes: 1}, slog.New(slog.DiscardHandler)) // a burst of ten
		drains := false
		w := &writes{store: st, budget: budget, draining: func(string) bool { return drains }}
		of := func(ended bool) draft {
			d := newDraft()
			d.op = coursetest.Requested(nil)
			if course.Begin(epoch, coursetest.Version)(d.op); ended {
				course.Finish(d.op, v1alpha1.PhaseSuccess, epoch)(d.op)
			}
			return d
		}
		first := of(false)
		if !w.pay(first) {
			t.Fatal("the first write waits")
		}
		if !w.pay(first) || first.paid != (fair.Price{Count: 1, Bytes: smallObject}) {
			t.Fatalf("paid is %+v", first.paid)
		}
		if w.refund(first); first.paid != (fair.Price{}) {
			t.Errorf("after a refund, paid is %+v", first.paid)
		}
		budget.Charge("ns", fair.Price{Count: 10})
		waits, ends := of(false), of(true)
		if w.pay(waits) || w.pay(ends) || !waits.short || !ends.short {
			t.Error("a write that is not covered does not wait")
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if !ends.wake.take() || waits.wake.take() || !w.pay(ends) || w.pay(waits) {
			t.Error("the terminal status is not written first")
		}
		if w.settleCost(ends, 100, nil); ends.paid != (fair.Price{}) || ends.short || ends.size != 100 ||
			w.size(ends) != 100 {
			t.Errorf("after a write: %+v", *ends.stored)
		}
		if drains = true; !w.pay(waits) || waits.paid.Count != 1 {
			t.Error("a write waits although the executor drains")
		}
		w.settleCost(waits, 0, nil)
		if u := budget.Usage(); u.Waiting != 0 {
			t.Errorf("%d writes still wait", u.Waiting)
		}
	})
}
