package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	own   *lease         // the last version written or read; only renew uses it once started

	joined bool // it has been in the record

	renewed atomic.Pointer[stamp] // start of the last successful renewal

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
	t := &term{g: g, id: string(id), have: map[int]*holding{}, quiet: g.layout.Set()}
	t.ctx, t.end = context.WithCancelCause(life)
	return t
}

// leaseOf returns the name of the Lease of an incarnation.
func (g *Group) leaseOf(id string) string { return g.opt.Name + "-" + id }

// begin creates the Lease of the term and starts to renew it. group is the uid of the group Lease.
func (t *term) begin(ctx context.Context, group types.UID) error {
	t.group = group
	begun := stamp{t.g.clock.now()}
	l := &lease{ObjectMeta: metav1.ObjectMeta{Name: t.g.leaseOf(t.id), Namespace: t.g.opt.Namespace}}
	t.fill(l, begun.Time)
	l.Spec.AcquireTime = l.Spec.RenewTime
	own, err := t.g.leases.create(ctx, l)
	if err != nil {
		return err // if the Lease was created nevertheless, others delete it when it expires
	}
	t.own = own
	t.renewed.Store(&begun)
	t.mu.Lock()
	t.publishLocked()
	t.mu.Unlock()
	t.g.view.ownIs(own.Name)
	t.g.view.saw(own)
	t.work.Go(t.renew)
	return nil
}

// fill sets the holder, the times, the label and the annotations of the Lease.
func (t *term) fill(l *lease, now time.Time) {
	holder, seconds, renewed := t.g.opt.Member, int32(max(1, t.g.opt.Duration.Seconds())), metav1.NewMicroTime(now)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &holder, &seconds, &renewed
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[Label] = t.g.opt.Name
	annotate(l, groupAnnotation, string(t.group))
	if t.g.opt.Address != "" {
		annotate(l, addressAnnotation, t.g.opt.Address)
	}
}

// fresh reports whether no other member can have replaced this incarnation. It is safe for concurrent use.
func (t *term) fresh() bool {
	r := t.renewed.Load()
	return r != nil && r.atMost(t.g.clock.now()) < t.g.opt.Renew
}

// renew renews the Lease until the term ends. It ends the term when renewals fail for too long.
func (t *term) renew() {
	wait := t.g.opt.period
	for {
		left := t.g.opt.Renew - t.renewed.Load().atMost(t.g.clock.now())
		select {
		case <-t.g.clock.after(min(wait, max(left, 0))):
		case <-t.ctx.Done():
			return
		}
		begun := stamp{t.g.clock.now()}
		left = t.g.opt.Renew - t.renewed.Load().atMost(begun.Time)
		if left <= 0 { // even if a renewal would succeed: work must not continue across a gap
			t.fail(errors.New("its Lease was not renewed in time"))
			return
		}
		err := t.renewOnce(begun, left)
		var lost errGone
		switch {
		case err == nil:
			t.g.trouble("renew", nil)
			wait = t.g.opt.period
		case errors.As(err, &lost):
			t.fail(err)
			return
		case errors.Is(err, errConflict):
			wait = 0
		default:
			t.g.trouble("renew", err)
			wait = t.g.opt.period / 3
		}
	}
}

// errGone is the error when a Lease can no longer be renewed.
type errGone string

func (e errGone) Error() string { return string(e) }

// renewOnce sends one renewal, which counts from begun. After a conflict it reads the Lease as the base of the next
// attempt. The conflict may come from a renewal whose response was lost, or from an edit by hand.
func (t *term) renewOnce(begun stamp, left time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(t.ctx, left, ErrLost)
	defer cancel()
	next := t.own.DeepCopy()
	t.fill(next, begun.Time)
	got, err := t.g.leases.put(ctx, next)
	if err == nil {
		if got.UID != t.own.UID {
			return errGone("its Lease was deleted")
		}
		t.g.view.renewed(t.own.ResourceVersion)
		t.own = got
		t.renewed.Store(&begun)
		return nil
	}
	if !errors.Is(err, errConflict) && !apierrors.IsNotFound(err) {
		return err
	}
	got, readErr := t.g.leases.get(ctx, next.Name)
	switch {
	case apierrors.IsNotFound(readErr) || readErr == nil && got.UID != t.own.UID:
		return errGone("its Lease was deleted")
	case readErr != nil:
		return readErr
	case got.Annotations[deadAnnotation] != "":
		return errGone("its Lease was taken for dead by " + got.Annotations[deadAnnotation])
	}
	t.own = got
	return err
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
	if t.renewed.Load() != nil {
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
	if t.own == nil || t.g.fatal() != nil { // after a panic, work may still run: the Lease must expire
		return
	}
	if err := t.g.leases.remove(life, t.own.Name, t.own.UID, ""); err != nil {
		t.g.log.InfoContext(life, "the Lease of this member is left to expire", leftBehind(err)...)
		return
	}
	t.g.view.missed(t.own.Name, "")
}
