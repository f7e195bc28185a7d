package group

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// liveness decides which members have certainly stopped, by their Leases. Only the goroutine of Run uses it.
type liveness struct {
	client *leasing.Client
	view   *view
	opt    *Options
	now    func() time.Time

	ended   []string                       // earlier incarnations of this member, which have ended
	foreign map[string]leasing.Observation // by name: Leases whose members may hold slots of others; see strangers
}

// addEnded records an incarnation of this member, no work of which runs any more.
func (l *liveness) addEnded(id string) { l.ended = append(l.ended, id) }

// hasEnded reports whether id is an earlier incarnation of this member.
func (l *liveness) hasEnded(id string) bool { return slices.Contains(l.ended, id) }

// forgetEnded removes the incarnations that have no Lease and are not in the record. The record may be nil.
func (l *liveness) forgetEnded(r *record) {
	l.ended = slices.DeleteFunc(l.ended, func(id string) bool {
		_, seen := l.view.get(leaseName(l.opt.Name, id))
		return !seen && (r == nil || r.member(id) == nil)
	})
}

// dead returns the members of a record that have certainly stopped. It marks the Leases of members that have not
// renewed them for their duration. own is the present incarnation of this member. The error is that of requests.
func (l *liveness) dead(ctx context.Context, own string, r *record) (dead []string, err error) {
	for _, other := range r.members {
		if other.ID == own || l.hasEnded(other.ID) {
			continue
		}
		is, checkErr := l.check(ctx, leaseName(l.opt.Name, other.ID), own)
		err = errors.Join(err, checkErr)
		if is {
			dead = append(dead, other.ID)
		}
	}
	return append(dead, l.ended...), err
}

// check reports whether the holder of a Lease has certainly stopped.
func (l *liveness) check(ctx context.Context, name, own string) (dead bool, err error) {
	s, ok := l.view.get(name)
	if !ok {
		if d, known := l.view.absentFor(name); known && d < l.view.longestDuration(l.opt.Duration) {
			return false, nil
		}
		got, err := l.client.Get(ctx, name)
		if apierrors.IsNotFound(err) {
			d, known := l.view.absentFor(name)
			l.view.setAbsent(name, "")
			return known && d >= l.view.longestDuration(l.opt.Duration), nil // its holder has stopped by now
		}
		if err == nil {
			l.view.observe(got)
		}
		return false, err
	}
	if s.Lease().Annotations[deadAnnotation] != "" {
		return true, nil
	}
	if !l.hasExpired(s) {
		return false, nil
	}
	return l.mark(ctx, s.Lease(), own)
}

// mark marks a Lease as dead, so that its holder cannot renew it any more. It reports whether the Lease is marked.
func (l *liveness) mark(ctx context.Context, expired *lease, own string) (dead bool, err error) {
	o := expired.DeepCopy()
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, deadAnnotation, l.opt.Member+" ("+own+")")
	got, err := l.client.Update(ctx, o)
	if err == nil {
		l.view.observe(got)
		return true, nil
	}
	if got, readErr := l.client.Get(ctx, o.Name); readErr == nil { // this or another member may have marked it
		l.view.observe(got)
		return got.Annotations[deadAnnotation] != "", nil
	} else if apierrors.IsNotFound(readErr) {
		l.view.setAbsent(o.Name, "")
		return false, nil
	}
	return false, err
}

// isFirst reports whether own is the first in the record whose Lease is renewed.
func (l *liveness) isFirst(own string, r *record) bool {
	for _, other := range r.members {
		if other.ID == own {
			return true
		}
		s, ok := l.view.get(leaseName(l.opt.Name, other.ID))
		if ok && s.Unchanged(l.now()) < l.opt.Renew {
			return false
		}
	}
	return false
}

// strangers reports whether one of the Leases may belong to a live member that holds slots which the record does not
// give it. group is the uid of the group Lease with the record. gone reports that the Lease of such a member has
// vanished since the last call, although its holder may still work.
func (l *liveness) strangers(all []lease, r *record, group types.UID) (some, gone bool) {
	before := l.foreign
	l.foreign = map[string]leasing.Observation{}
	listed := map[string]bool{}
	for i := range all {
		o := &all[i]
		listed[o.Name] = true
		id, ok := strings.CutPrefix(o.Name, leaseName(l.opt.Name, ""))
		if !ok || o.Annotations[deadAnnotation] != "" || l.hasEnded(id) {
			continue
		}
		_, named, _ := holdingsOf(o)
		if o.Annotations[groupAnnotation] != string(group) || !r.gives(id, named) {
			l.foreign[o.Name], _ = l.view.get(o.Name)
		}
		some = some || r.member(id) == nil
	}
	for name, s := range before {
		id, _ := strings.CutPrefix(name, leaseName(l.opt.Name, ""))
		gone = gone || !listed[name] && !l.hasEnded(id) && !l.hasExpired(s)
	}
	return some || len(l.foreign) > 0, gone
}

// isFresh reports whether the holder of a listed Lease may still work.
func (l *liveness) isFresh(o *lease) bool {
	id, _ := strings.CutPrefix(o.Name, leaseName(l.opt.Name, ""))
	s, _ := l.view.get(o.Name)
	return o.Annotations[deadAnnotation] == "" && !l.hasEnded(id) && !l.hasExpired(s)
}

// hasExpired reports whether a Lease was not renewed for its duration. It is false for a Lease that was not observed.
func (l *liveness) hasExpired(s leasing.Observation) bool {
	return s.Lease() != nil && s.Unchanged(l.now()) >= max(l.opt.Duration, durationOf(s.Lease()))
}

// clean deletes Leases that belong to no member of the record and are dead or no longer renewed.
func (l *liveness) clean(ctx context.Context, own string, r *record) {
	prefix := leaseName(l.opt.Name, "")
	l.view.forget(func(name string) bool { return r.member(strings.TrimPrefix(name, prefix)) == nil })
	for _, s := range l.view.all() {
		id, ok := strings.CutPrefix(s.Lease().Name, prefix)
		if !ok || r.member(id) != nil || id == own {
			continue
		}
		if s.Lease().Annotations[deadAnnotation] == "" && !l.hasExpired(s) {
			continue
		}
		switch err := l.client.Delete(ctx, s.Lease().Name, s.Lease().UID, s.Lease().ResourceVersion); {
		case err == nil:
			l.view.setAbsent(s.Lease().Name, "")
		case errors.Is(err, leasing.ErrConflict):
			if got, err := l.client.Get(ctx, s.Lease().Name); err == nil {
				l.view.observe(got)
			}
		}
	}
}
