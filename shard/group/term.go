package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// term is one incarnation of a member, from the creation of its Lease until the Lease is lost or deleted. It connects
// the Lease and the slots that depend on it. Only the goroutine of Run calls its methods, except fail.
type term struct {
	id       string
	ctx      context.Context //nolint:containedctx // ends with the term
	end      context.CancelCauseFunc
	lease    *ownLease
	slots    *handover
	announce func(Change)
	wake     func() // starts the next step of the member
	renewing sync.WaitGroup

	self    atomic.Pointer[member] // in the last record; nil before
	joined  types.UID              // of the last group Lease whose record contained the term
	founded types.UID              // of the last group Lease whose record was founded
}

// newID returns a random name for an incarnation.
func newID() string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // as Kubernetes uses for generated names
	id := make([]byte, 10)
	for i := range id {
		id[i] = letters[rand.IntN(len(letters))]
	}
	return string(id)
}

// leaseName returns the name of the Lease of an incarnation.
func leaseName(group, id string) string { return group + "-" + id }

// begin creates the Lease of the term, starts to renew it, and waits for the first renewal. Without the permission to
// patch, this member thus never joins. group is the uid of the group Lease.
func (t *term) begin(group types.UID) error {
	if err := t.lease.create(t.ctx, group); err != nil {
		return err
	}
	t.renewing.Go(func() {
		if err := t.lease.renew(t.ctx); err != nil {
			t.fail(err)
		}
	})
	if err := t.lease.awaitHold(t.ctx); err != nil {
		return err
	}
	t.slots.open()
	return nil
}

// group returns the uid of the group Lease in which the term takes part, or "" before begin.
func (t *term) group() types.UID {
	if uid := t.lease.group.Load(); uid != nil {
		return *uid
	}
	return ""
}

// enterIf makes the term take part in a group Lease if its record gives the term all slots that it holds.
func (t *term) enterIf(group types.UID, r *record) {
	if t.group() != "" && r.gives(t.id, t.slots.held()) {
		t.lease.enter(group)
	}
}

// fail ends the term at once, and all of its slots are lost. It is safe for concurrent use.
func (t *term) fail(cause error) {
	held, first := t.slots.revoke()
	if !first {
		return
	}
	t.end(fmt.Errorf("%w: %w", ErrLost, cause))
	if _, began := t.lease.renewal.Age(); began {
		t.announce(Change{Kind: Lost, Slots: held, Err: cause})
	}
	t.wake()
}

// close ends the term and waits until no work of it runs any more. Slots that it still holds are lost.
func (t *term) close() {
	t.slots.revoke()
	t.end(ErrLost)
	t.slots.close()
	t.renewing.Wait()
}
