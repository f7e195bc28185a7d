package group

import (
	"context"
	"errors"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// ownLease is the Lease of one incarnation of this member. create comes first, then renew on a goroutine of its own,
// and after its end remove. Only renewal is safe for concurrent use.
type ownLease struct {
	opt      *Options
	clock    leasing.Clock
	log      *slog.Logger
	view     *view
	setError func(what string, err error)

	record  leasing.Record
	group   types.UID // uid of the group Lease; "" before create
	renewal leasing.Renewal
}

// create creates the Lease. If it fails and the Lease was created nevertheless, others delete it when it expires.
func (l *ownLease) create(ctx context.Context, group types.UID) error {
	l.group = group
	begun := l.clock.Stamp()
	err := l.record.Create(ctx, func(o *lease) {
		l.fill(o, begun.Time)
		o.Spec.AcquireTime = o.Spec.RenewTime
	})
	if err != nil {
		return err
	}
	l.renewal.Renewed(begun)
	l.view.setOwn(l.record.Name)
	l.view.observe(l.record.Last())
	return nil
}

// fill sets the holder, the times, the label and the annotations of the Lease.
func (l *ownLease) fill(o *lease, now time.Time) {
	holder, seconds, renewed := l.opt.Member, int32(max(1, l.opt.Duration.Seconds())), metav1.NewMicroTime(now)
	o.Spec.HolderIdentity, o.Spec.LeaseDurationSeconds, o.Spec.RenewTime = &holder, &seconds, &renewed
	metav1.SetMetaDataLabel(&o.ObjectMeta, Label, l.opt.Name)
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, groupAnnotation, string(l.group))
	if l.opt.Address != "" {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, addressAnnotation, l.opt.Address)
	}
}

// renew renews the Lease until ctx ends. It returns an error when renewals fail for too long, or when another member
// has marked the Lease as dead.
func (l *ownLease) renew(ctx context.Context) error {
	return l.renewal.Run(ctx, l.opt.period, l.renewOnce)
}

// renewOnce sends one renewal, and returns the wait until the next one.
func (l *ownLease) renewOnce(ctx context.Context, begun leasing.Stamp) (wait time.Duration, err error) {
	replaced := l.record.Last().ResourceVersion
	err = l.record.Renew(ctx, func(o *lease) { l.fill(o, begun.Time) })
	switch {
	case err == nil:
		l.renewal.Renewed(begun)
		l.view.countRenewal(replaced)
		l.setError("renew", nil)
		return l.opt.period, nil
	case errors.Is(err, leasing.ErrDeleted):
		return 0, err
	case errors.Is(err, leasing.ErrConflict):
		if by := l.record.Last().Annotations[deadAnnotation]; by != "" {
			return 0, errors.New("its Lease was marked as dead by " + by)
		}
		return 0, nil
	}
	l.setError("renew", err)
	return l.opt.period / 3, nil
}

// remove deletes the Lease if it was created, so that others need not wait for its end.
func (l *ownLease) remove(ctx context.Context) {
	own := l.record.Last()
	if own == nil {
		return
	}
	if err := l.record.Client.Delete(ctx, own.Name, own.UID, ""); err != nil {
		l.log.InfoContext(ctx, "the Lease of this member is left to expire", leftBehind(err)...)
		return
	}
	l.view.setAbsent(own.Name, "")
}
