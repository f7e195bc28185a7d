package reconcile

import (
	"context"
	"errors"
	"testing"

	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/shard"
)

var (
	errNotLeading = errors.New("does not lead")
	errNotHeld    = errors.New("the slot is not held")
)

type refusingLeader struct{ Leadership }

func (refusingLeader) Fence(context.Context) error { return errNotLeading }

type refusingShards struct{ shard.Membership }

func (refusingShards) Fence(slot int) error {
	if slot == 7 {
		return errNotHeld
	}
	return nil
}

// TestBindings: requests of a reconciliation and of a fiber are refused once the right to work is lost. They require a
// resource version if another process may have that right.
func TestBindings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		b       bindings
		slot    int
		refused error
		version bool // a reconciliation requires versions
	}{
		{"alone", bindings{}, 0, nil, false},
		{"preemptible", bindings{preempt: true}, 0, nil, true},
		{"leadership is lost", bindings{leader: refusingLeader{}}, 0, errNotLeading, true},
		{"slot is held", bindings{shards: refusingShards{}}, 1, nil, true},
		{"slot is lost", bindings{shards: refusingShards{}}, 7, errNotHeld, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			tc.b.owner, tc.b.controller, tc.b.finalizer = "reconcile/gateways", "gateways", "example.com/gateways"
			ctx, cancel := context.WithCancelCause(t.Context())
			r := &reconciliation{key: key("a", 1), slot: tc.slot, term: t.Context(), cancel: cancel, attempt: 3}
			own := tc.b.ofCall(r)
			if err := own.Fence(); !errors.Is(err, tc.refused) {
				t.Errorf("a request is refused with %v", err)
			}
			if own.RequireVersion != tc.version || own.Write.Owner != tc.b.owner || own.Write.Primary != r.key {
				t.Errorf("the binding is %+v", own)
			}
			theirs := tc.b.userContext(ctx, r, own)
			if i := InfoFrom(theirs); i.Attempt != 3 || i.Finalizer != tc.b.finalizer || i.Controller != "gateways" {
				t.Errorf("the info is %+v", i)
			}
			values := tc.b.ofFiber(theirs, t.Context(), r.key, tc.slot, &r.waiting)
			r.stop(errReturned)
			if err := own.Fence(); !errors.Is(err, errReturned) || ctx.Err() == nil {
				t.Errorf("after its end, a request is refused with %v", err)
			}
			fiber := binding.From(values)
			if values.Err() != nil || !fiber.RequireVersion {
				t.Errorf("a fiber does not outlive the reconciliation: %+v", fiber)
			}
			if fiber.Fence == nil {
				fiber.Fence = func() error { return nil }
			}
			if err := fiber.Fence(); !errors.Is(err, tc.refused) {
				t.Errorf("a request of a fiber is refused with %v", err)
			}
		})
	}
}
