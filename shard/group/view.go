package group

import (
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// view stores the observed Leases of a group, from the watch and from responses. It is safe for concurrent use.
type view struct {
	now func() time.Time

	mu        sync.Mutex
	seen      map[string]leasing.Observation // by name
	absent    map[string]leasing.Stamp       // by name: since when the Lease is known to be absent
	any       bool                           // a Lease was ever observed
	longest   time.Duration                  // of a Lease that was ever observed
	own       string                         // the name of the Lease of this member
	delivered string                         // the last version of own from the watch
	late      int                            // consecutive renewals of own that the watch delivered too late
}

func newView(now func() time.Time) *view {
	return &view{now: now, seen: map[string]leasing.Observation{}, absent: map[string]leasing.Stamp{}}
}

// observe records a Lease, unless a newer version is known.
func (v *view) observe(l *lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.observeLocked(l)
}

func (v *view) observeLocked(l *lease) {
	seen := v.seen[l.Name]
	if seen.See(l, leasing.Stamp{Time: v.now()}) {
		v.any, v.longest = true, max(v.longest, durationOf(l))
		delete(v.absent, l.Name)
		v.seen[l.Name] = seen
	}
}

// durationOf returns for how long a Lease asks to be respected without a renewal. It is at most maxDuration, and 0 if
// the Lease does not say it.
func durationOf(l *lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return min(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second, maxDuration)
}

// longestDuration returns the longest duration of a Lease that was ever observed, and at least own. It applies to a
// Lease that does not exist any more.
func (v *view) longestDuration(own time.Duration) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return max(own, v.longest)
}

// known reports whether a Lease of the group was ever observed.
func (v *view) known() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.any
}

// setOwn sets the name of our own Lease, and restarts the check that the watch delivers its renewals.
func (v *view) setOwn(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.own, v.delivered, v.late = name, "", 0
}

// deliver records a Lease that the watch delivered.
func (v *view) deliver(l *lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l.Name == v.own {
		v.delivered = l.ResourceVersion
	}
	v.observeLocked(l)
}

// countRenewal counts a renewal of own. before is the version that the renewal replaced.
func (v *view) countRenewal(before string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.late++; resourceversion.AtLeast(v.delivered, before) {
		v.late = 0
	}
}

// lags reports whether the watch is behind, so that the member must list the Leases.
func (v *view) lags() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.own == "" || v.late > 1
}

// setAbsent records that there is no Lease of a name. version is the last one of the deleted Lease, or "" if not known.
func (v *view) setAbsent(name, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.setAbsentLocked(name, version)
}

func (v *view) setAbsentLocked(name, version string) {
	if had, ok := v.seen[name]; ok && version != "" && resourceversion.Older(version, had.Lease().ResourceVersion) {
		return
	}
	delete(v.seen, name)
	if _, ok := v.absent[name]; !ok {
		v.absent[name] = leasing.Stamp{Time: v.now()}
	}
}

// replace records the result of a list.
func (v *view) replace(all *coordinationv1.LeaseList) {
	v.mu.Lock()
	defer v.mu.Unlock()
	there := map[string]bool{}
	for i := range all.Items {
		there[all.Items[i].Name] = true
		v.observeLocked(&all.Items[i])
	}
	for name := range v.seen {
		if !there[name] {
			v.setAbsentLocked(name, all.ResourceVersion)
		}
	}
}

func (v *view) get(name string) (s leasing.Observation, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok = v.seen[name]
	return s, ok
}

// absentFor returns for how long a Lease has been known to be absent; ok is false if that is not known.
func (v *view) absentFor(name string) (d time.Duration, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	since, ok := v.absent[name]
	return since.AtLeast(v.now()), ok
}

// forget removes the absent Leases for which is returns true.
func (v *view) forget(is func(name string) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.absent, func(name string, _ leasing.Stamp) bool { return is(name) })
}

// all returns the last observed version of each Lease.
func (v *view) all() []leasing.Observation {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Values(v.seen))
}
