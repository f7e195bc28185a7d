package leasing

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// Observation is the newest known version of a Lease, and since when this process has known it. The zero value knows
// none.
type Observation struct {
	lease *Lease
	since Stamp
}

// See records a version of the Lease. It reports false, and changes nothing, if that version or a newer one is known.
func (o *Observation) See(l *Lease, now Stamp) bool {
	if o.lease != nil && (o.lease.ResourceVersion == l.ResourceVersion ||
		resourceversion.Older(l.ResourceVersion, o.lease.ResourceVersion)) {
		return false
	}
	o.lease, o.since = l, now
	return true
}

// Lease returns the newest known version, or nil.
func (o Observation) Lease() *Lease { return o.lease }

// Unchanged returns for how long there has been no newer version, as far as this process knows. The holder has not
// renewed the Lease in that time, unless the process sees no changes.
func (o Observation) Unchanged(now time.Time) time.Duration { return o.since.AtLeast(now) }
