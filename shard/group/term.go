package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/shard"
)

// term is one incarnation of a member, from the creation of its Lease until the Lease is lost or deleted. Only the
// goroutine of Run may call its methods, unless they say otherwise.
type term struct {
	g     *Group
	id    string
	group types.UID       // uid of the group Lease; "" before begin
	ctx   context.Context //nolint:containedctx // ends with the term
	end   context.CancelCauseFunc
	work  sync.WaitGroup // the renewal, and calls of participants
	own   leasing.Record // its Lease; only the renewal uses it once started

	joined  bool // it has been in the record
	renewal leasing.Renewal

	mu    sync.Mutex // guards the fields below; no other lock is acquired under it
	lost  bool
	have  map[int]*holding // held slots, until participants have released them
	quiet shard.Set        // released by participants, not yet in the record
}

// newTerm returns a term without a Lease. It ends with life at the latest.
func (g *Group) newTerm(life context.Context) *term {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // as Kubernetes uses for generated names
	id := make([]byte, 10)
	for i := range id {
		id[i] = letters[rand.IntN(len(letters))]
	}
	t := &term{
		g: g, id: string(id), have: map[int]*holding{}, quiet: g.layout.Set(),
		own:     leasing.Record{Client: g.leases, Name: g.leaseOf(string(id))},
		renewal: leasing.Renewal{Clock: g.clock, Bound: g.opt.Renew},
	}
	t.ctx, t.end = context.WithCancelCause(life)
	return t
}

// leaseOf returns the name of the Lease of an incarnation.
func (g *Group) leaseOf(id string) string { return g.opt.Name + "-" + id }

// begin creates the Lease of the term and starts to renew it. group is the uid of the group Lease.
func (t *term) begin(ctx context.Context, group types.UID) error {
	t.group = group
	begun := t.g.clock.Stamp()
	err := t.own.Create(ctx, func(l *lease) {
		t.fill(l, begun.Time)
		l.Spec.AcquireTime = l.Spec.RenewTime
	})
	if err != nil {
		return err // if the Lease was created nevertheless, others delete it when it expires
	}
	t.renewal.Renewed(begun)
	t.mu.Lock()
	t.publishLocked()
	t.mu.Unlock()
	t.g.view.ownIs(t.own.Name)
	t.g.view.saw(t.own.Last())
	t.work.Go(t.renew)
	return nil
}

// fill sets the holder, the times, the label and the annotations of the Lease.
func (t *term) fill(l *lease, now time.Time) {
	holder, seconds, renewed := t.g.opt.Member, int32(max(1, t.g.opt.Duration.Seconds())), metav1.NewMicroTime(now)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &holder, &seconds, &renewed
	metav1.SetMetaDataLabel(&l.ObjectMeta, Label, t.g.opt.Name)
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, groupAnnotation, string(t.group))
	if t.g.opt.Address != "" {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, addressAnnotation, t.g.opt.Address)
	}
}

// renew renews the Lease until the term ends. It ends the term when renewals fail for too long.
func (t *term) renew() {
	if err := t.renewal.Run(t.ctx, t.g.opt.period, t.renewOnce); err != nil {
		t.fail(err)
	}
}

// renewOnce sends one renewal, and returns the wait until the next one. An error ends the term.
func (t *term) renewOnce(ctx context.Context, begun leasing.Stamp) (wait time.Duration, err error) {
	replaced := t.own.Last().ResourceVersion
	err = t.own.Renew(ctx, func(l *lease) { t.fill(l, begun.Time) })
	switch {
	case err == nil:
		t.renewal.Renewed(begun)
		t.g.view.renewed(replaced)
		t.g.setError("renew", nil)
		return t.g.opt.period, nil
	case errors.Is(err, leasing.ErrDeleted):
		return 0, err
	case errors.Is(err, leasing.ErrConflict):
		if by := t.own.Last().Annotations[deadAnnotation]; by != "" {
			return 0, errors.New("its Lease was marked as dead by " + by)
		}
		return 0, nil
	}
	t.g.setError("renew", err)
	return t.g.opt.period / 3, nil
}

// fail ends the term at once, and all of its slots are lost. It is safe for concurrent use.
func (t *term) fail(cause error) {
	t.mu.Lock()
	first := !t.lost
	t.lost = true
	held := t.g.layout.Set()
	if first {
		held = t.heldLocked()
		t.g.holds.Store(nil)
	}
	t.mu.Unlock()
	if !first {
		return
	}
	t.end(fmt.Errorf("%w: %w", ErrLost, cause))
	if _, began := t.renewal.Age(); began {
		t.g.note(Change{Kind: Lost, Slots: held, Err: cause})
	}
	t.g.wake()
}

// close waits until no work of the term runs any more, and deletes its Lease. Slots that it still holds are lost.
func (t *term) close(life context.Context) {
	t.mu.Lock()
	t.lost = true
	t.g.holds.Store(nil)
	t.mu.Unlock()
	t.end(ErrLost)
	t.lose(t.held())
	t.work.Wait()
	own := t.own.Last()
	if own == nil || t.g.fatal() != nil { // after a panic, work may still run: the Lease must expire
		return
	}
	if err := t.g.leases.Delete(life, own.Name, own.UID, ""); err != nil {
		t.g.log.InfoContext(life, "the Lease of this member is left to expire", leftBehind(err)...)
		return
	}
	t.g.view.setAbsent(t.own.Name, "")
}
