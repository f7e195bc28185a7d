package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// ownLease is the Lease of one incarnation of this member. create comes first, then renew on a goroutine of its own,
// and after its end remove.
//
// A renewal is a JSON patch. It names the uid of the Lease, and tests that no member has marked the Lease as dead. It
// names no version, so renewals may overlap and arrive in any order. If a renewal succeeds, the Lease was not marked
// after it was sent, and its version is new to every other member.
type ownLease struct {
	opt      *Options
	clock    leasing.Clock
	log      *slog.Logger
	view     *view
	setError func(what string, err error)
	coverage coverage
	census   *census
	holdings func() *holdings // nil if this member is not in a record yet
	ready    func() string    // see readiness.statement
	client   *leasing.Client
	name     string
	renewal  leasing.Renewal
	renewed  chan struct{} // closed by the first renewal, with which the hold begins

	group   atomic.Pointer[types.UID] // of the group Lease; nil before create
	created *lease                    // nil before create
	first   sync.Once
	version atomic.Pointer[string]        // of the last response
	failed  atomic.Pointer[leasing.Stamp] // start of the last renewal that failed; a response to an older one is no news
}

// create creates the Lease. If it fails and the Lease was created nevertheless, others delete it when it expires.
func (l *ownLease) create(ctx context.Context, group types.UID) error {
	l.group.Store(&group)
	o := &lease{ObjectMeta: metav1.ObjectMeta{Name: l.name, Namespace: l.opt.Namespace}}
	l.fill(o, l.clock.Now())
	o.Spec.AcquireTime = o.Spec.RenewTime
	got, err := l.client.Create(ctx, o)
	if err != nil {
		return err
	}
	l.created = got
	l.version.Store(&got.ResourceVersion)
	l.view.setOwn(l.name)
	l.view.observe(got)
	return nil
}

// fill sets the holder, the times, the label and the annotations of the Lease. The annotation of a dead member is
// there and empty, so that a patch can test it.
func (l *ownLease) fill(o *lease, now time.Time) {
	seconds := int32((l.opt.Duration + time.Second - 1) / time.Second)
	holder, renewed := l.opt.Member, metav1.NewMicroTime(now)
	o.Spec.HolderIdentity, o.Spec.LeaseDurationSeconds, o.Spec.RenewTime = &holder, &seconds, &renewed
	if l.created != nil {
		o.Spec.AcquireTime = l.created.Spec.AcquireTime
	}
	metav1.SetMetaDataLabel(&o.ObjectMeta, Label, l.opt.Name)
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, groupAnnotation, string(*l.group.Load()))
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, deadAnnotation, "")
	if l.coverage.Program != "" {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, coverageAnnotation, l.coverage.encode())
	}
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, formatAnnotation, strconv.Itoa(l.opt.format))
	delete(o.Annotations, histogramAnnotation)
	load, objects := l.census.take()
	if load != nil {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, loadAnnotation, strconv.Itoa(*load))
	}
	if objects != nil {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, histogramAnnotation, objects.encode())
	}
	if h := l.holdings(); h != nil {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, holdingsAnnotation, h.encode())
	}
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, readyAnnotation, l.ready())
	if l.opt.Address != "" {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, addressAnnotation, l.opt.Address)
	}
}

// enter makes later renewals name a group Lease. This member then holds only slots that the record in it gives it.
func (l *ownLease) enter(group types.UID) { l.group.Store(&group) }

// patch returns the JSON patch of a renewal.
func (l *ownLease) patch(now time.Time) []byte {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var o lease
	l.fill(&o, now)
	text, _ := json.Marshal([]operation{ // marshaling these types cannot fail
		{"test", "/metadata/uid", l.created.UID},
		{"test", "/metadata/annotations/" + strings.ReplaceAll(deadAnnotation, "/", "~1"), ""},
		{"add", "/metadata/labels", o.Labels},
		{"add", "/metadata/annotations", o.Annotations},
		{"add", "/spec", o.Spec},
	})
	return text
}

// renew renews the Lease until ctx ends. It returns an error when renewals fail for too long, or when another member
// has marked the Lease as dead.
func (l *ownLease) renew(ctx context.Context) error {
	return l.renewal.RunOverlapping(ctx, l.opt.period, l.renewOnce)
}

// awaitHold waits for the first renewal. ctx ends when renew has failed.
func (l *ownLease) awaitHold(ctx context.Context) error {
	select {
	case <-l.renewed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// renewOnce sends one renewal, and extends the hold if it succeeds. An error ends the hold.
func (l *ownLease) renewOnce(ctx context.Context, begun leasing.Stamp) (renewed bool, err error) {
	replaced := *l.version.Load()
	got, err := l.client.Patch(ctx, l.name, l.patch(begun.Time))
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		if got, err = l.examine(ctx, begun); errors.Is(err, errRevoked) {
			return false, err
		}
	}
	switch {
	case err == nil:
		if !l.renewal.Extend(begun) {
			return false, leasing.ErrExpired
		}
		l.version.Store(&got.ResourceVersion)
		l.view.countRenewal(replaced)
		if failed := l.failed.Load(); failed == nil || !failed.After(begun.Time) {
			l.setError("renew", nil)
		}
		l.first.Do(func() { close(l.renewed) })
		return true, nil
	case errors.Is(err, leasing.ErrConflict), errors.Is(ctx.Err(), context.Canceled), l.renewal.HasAfter(begun):
	default:
		l.failed.Store(&begun)
		l.setError("renew", err)
	}
	return false, nil
}

// errRevoked means that this incarnation has no Lease any more.
var errRevoked = errors.New("the Lease of this member is void")

// examine reads the Lease after a patch was refused. If the Lease was edited by hand, examine writes it again. The
// error matches errRevoked if the Lease was deleted or marked as dead.
func (l *ownLease) examine(ctx context.Context, begun leasing.Stamp) (*lease, error) {
	got, err := l.client.Get(ctx, l.name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && got.UID != l.created.UID:
		return nil, fmt.Errorf("%w: %w", errRevoked, leasing.ErrDeleted)
	case err != nil:
		return nil, err
	}
	if by := got.Annotations[deadAnnotation]; by != "" {
		return nil, fmt.Errorf("%w: it was marked as dead by %s", errRevoked, by)
	}
	next := got.DeepCopy()
	l.fill(next, begun.Time)
	return l.client.Update(ctx, next)
}

// remove deletes the Lease if it was created, so that others need not wait for its end.
func (l *ownLease) remove(ctx context.Context) {
	if l.created == nil {
		return
	}
	if err := l.client.Delete(ctx, l.name, l.created.UID, ""); err != nil {
		l.log.InfoContext(ctx, "the Lease of this member is left to expire", leftBehind(err)...)
		return
	}
	l.view.setAbsent(l.name, "")
}
