package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/shard"
)

// groupLease is the Lease of the group, as this member reads and writes it. It knows the last record, so that it
// notices an edit by hand. Only the goroutine of Run uses it.
type groupLease struct {
	client    *leasing.Client
	view      *view
	opt       *Options
	layout    shard.Layout
	clock     leasing.Clock
	setRecord func(*record) // it is called with each new record

	stale     bool          // the last known Lease may be out of date
	listed    time.Time     // time of the last list of all Leases
	uid       types.UID     // of the Lease of the group that was last read
	last      *record       // the record in it; nil: none that this program can read
	base      *lease        // the Lease that has it
	recreated leasing.Stamp // when there was a trace of another incarnation of the Lease
}

// get returns the newest known Lease, or nil if there is none. If the watch is behind, it lists all Leases first.
func (l *groupLease) get(ctx context.Context) (*lease, error) {
	if now := l.clock.Now(); l.view.lags() && now.Sub(l.listed) >= l.opt.period {
		l.listed = now
		if _, err := l.list(ctx); err != nil {
			return nil, err
		}
	}
	if s, ok := l.view.get(l.opt.Name); ok && !l.stale {
		return s.Lease(), nil
	}
	got, err := l.client.Get(ctx, l.opt.Name)
	switch {
	case apierrors.IsNotFound(err):
		l.view.setAbsent(l.opt.Name, "")
		return nil, nil
	case err != nil:
		return nil, err
	}
	return l.newest(got), nil
}

// list reads the Leases of the group and of its members.
func (l *groupLease) list(ctx context.Context) ([]lease, error) {
	all, err := l.client.List(ctx, Label, l.opt.Name)
	if err != nil {
		return nil, err
	}
	l.view.replace(all)
	return all.Items, nil
}

// create creates the Lease. Its record adopts what fresh Leases of members name. Any Lease that this member has ever
// seen, even of a dead member or with a record that it cannot read, shows that there was another incarnation.
func (l *groupLease) create(ctx context.Context, isFresh func(*lease) bool) (*lease, error) {
	all, err := l.list(ctx)
	if err != nil {
		return nil, err
	}
	r := fresh(l.layout, l.opt.Leader)
	if l.last != nil && sameDivision(l.last.layout, l.layout) {
		r.layout = l.last.layout
	}
	all = slices.DeleteFunc(all, func(o lease) bool { return !isFresh(&o) })
	if err := r.adopt(all, leaseName(l.opt.Name, "")); err != nil {
		return nil, err
	}
	o := &lease{ObjectMeta: metav1.ObjectMeta{Name: l.opt.Name, Namespace: l.opt.Namespace}}
	metav1.SetMetaDataLabel(&o.ObjectMeta, Label, l.opt.Name)
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, roleAnnotation, l.opt.Role)
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, recordAnnotation, r.encode())
	if l.view.known() {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, recreatedAnnotation, "true")
	}
	got, err := l.client.Create(ctx, o)
	if err != nil {
		return nil, err
	}
	return l.newest(got), nil
}

// newest records a response, and returns the newest known version.
func (l *groupLease) newest(got *lease) *lease {
	l.stale = false
	l.view.observe(got)
	if s, ok := l.view.get(l.opt.Name); ok {
		return s.Lease() // the watch may be ahead of the response
	}
	return got
}

// read returns the record in a Lease. joined reports that this member takes part in this incarnation of the Lease. self
// is the ID of this member if the record has contained it, or "". The error matches ErrNotGroup or ErrRole if the Lease
// never was that of the group, and errRecord if members have not written it.
func (l *groupLease) read(object *lease, joined bool, self string) (*record, error) {
	name := fmt.Sprintf("%s/%s", l.opt.Namespace, l.opt.Name)
	role := object.Annotations[roleAnnotation]
	switch {
	case role == l.opt.Role || joined:
	case role == "":
		return nil, fmt.Errorf("cannot take part in the group %s: %w", name, ErrNotGroup)
	default:
		return nil, fmt.Errorf("cannot take part in the group %s as %q: %w: %q", name, l.opt.Role, ErrRole, role)
	}
	r, err := decode(object.Annotations[recordAnnotation])
	switch {
	case err != nil:
		return nil, err
	case r.format() > l.opt.format:
		l.meet(object.UID)
		return nil, errFormat(r.format())
	case role != l.opt.Role:
		return nil, fmt.Errorf("%w: its role is %q", errRecord, role)
	case r.founded != "" && r.founded != string(object.UID):
		return nil, fmt.Errorf("%w: it is a copy of that of another object", errRecord)
	case l.uid == object.UID && l.last != nil && (r.rev < l.last.rev || r.rev == l.last.rev && r.sum != l.last.sum):
		return nil, fmt.Errorf("%w: it is at %d, and was at %d", errRecord, r.rev, l.last.rev)
	case self != "" && r.founded == "" && (l.last.founded != "" || r.member(self) == nil) && len(r.members) > 0 &&
		(r.leader == "" || !r.free()):
		// With a leader, change.abandon may have written it.
		return nil, fmt.Errorf("%w: it is that of a former group", errRecord)
	}
	l.meet(object.UID)
	again := r.founded == "" && (object.Annotations[recreatedAnnotation] != "" || !r.free())
	if again && l.recreated.IsZero() {
		l.setRecreated()
	}
	l.remember(object, r)
	return r, nil
}

// meet records an incarnation of the Lease, also one whose record this program cannot read.
func (l *groupLease) meet(uid types.UID) {
	if l.uid == uid {
		return
	}
	if l.uid != "" {
		l.setRecreated()
	}
	l.uid, l.last = uid, nil
}

func (l *groupLease) remember(object *lease, r *record) {
	l.last, l.base = r, object
	l.setRecord(r)
}

// discard deletes a Lease whose record failed to be read with err, so that members create the group again. It keeps the
// record of a newer version of the program. ctx may have ended.
func (l *groupLease) discard(ctx context.Context, object *lease, err error) error {
	if errors.As(err, new(errFormat)) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opt.Renew)
	defer cancel()
	return errors.Join(err, l.client.Delete(ctx, object.Name, object.UID, object.ResourceVersion))
}

// labeled reports whether the Lease has the label by which members find it.
func (l *groupLease) labeled(object *lease) bool { return object.Labels[Label] == l.opt.Name }

// write replaces the record of a Lease. It fails with a conflict if the Lease has changed.
func (l *groupLease) write(ctx context.Context, object *lease, next *record) error {
	o := object.DeepCopy()
	metav1.SetMetaDataLabel(&o.ObjectMeta, Label, l.opt.Name)
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, recordAnnotation, next.encode())
	if next.founded != "" {
		delete(o.Annotations, recreatedAnnotation)
	}
	got, err := l.client.Update(ctx, o)
	if err != nil {
		return err
	}
	l.view.observe(got)
	l.remember(got, next)
	return nil
}

// setRecreated records that there was another incarnation of the Lease until now, as far as this member knows.
func (l *groupLease) setRecreated() { l.recreated = l.clock.Stamp() }

// recreatedRecently reports that there was another incarnation of the Lease. Members that have not noticed its deletion
// may still work, until their own Leases have expired.
func (l *groupLease) recreatedRecently() bool {
	return !l.recreated.IsZero() && l.recreated.AtLeast(l.clock.Now()) < l.view.longestDuration(l.opt.Duration)
}

// usable returns r, or a new record if r has another layout and no members. If r has members, it returns an error that
// says why this member cannot join.
func (l *groupLease) usable(r *record) (*record, error) {
	if sameDivision(r.layout, l.layout) && r.leader == l.opt.Leader {
		return r, nil
	}
	if len(r.members) > 0 {
		return r, fmt.Errorf("cannot join the group yet: %w: %d members share %d slots by %s, led by %q", ErrLayout,
			len(r.members), len(r.slots), r.layout.By, r.leader)
	}
	n := fresh(l.layout, l.opt.Leader)
	n.rev = r.rev
	return n, nil
}
