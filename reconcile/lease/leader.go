package lease

import (
	"errors"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// addressAnnotation has the address of the holder of a Lease: its identity, a space, and Options.Address. A holder
// without an address keeps the annotation of its predecessor, which the identity reveals.
const addressAnnotation = "fairlead.io/leader-address"

var errNotRunning = errors.New("this process takes no part in the election: Lease.Run is not running")

// leader is what a process knows about the leader. A nil leader means that Run is not running.
type leader struct {
	lease     *leasing.Lease // from the last response; nil: none, or not known
	unrenewed time.Duration  // for how long another holder had not renewed it at the last response
	err       error          // of the last request; nil if it succeeded
}

// identity returns the holder, or why it is not known.
func (l *leader) identity() (string, error) {
	switch {
	case l == nil:
		return "", errNotRunning
	case l.err != nil:
		return "", l.err
	}
	return leasing.Holder(l.lease), nil
}

// address returns the address of the holder, or "" if it is not known.
func (l *leader) address() string {
	holder, err := l.identity()
	if err != nil || holder == "" {
		return ""
	}
	of, address, _ := strings.Cut(l.lease.Annotations[addressAnnotation], " ")
	if of != holder {
		return ""
	}
	return address
}

// since returns when the holder acquired the lease, by the clock of the holder. It is zero if that is not known.
func (l *leader) since() time.Time {
	if holder, _ := l.identity(); holder == "" || l.lease.Spec.AcquireTime == nil {
		return time.Time{}
	}
	return l.lease.Spec.AcquireTime.Time
}
