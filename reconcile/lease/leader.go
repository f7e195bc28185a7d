package lease

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// addressAnnotation has the address of the holder of a Lease: its identity, a space, and Options.Address. A holder
// without an address keeps the annotation of its predecessor, which the identity reveals.
const addressAnnotation = "fairlead.io/leader-address"

// writeAddress adds the address of the holder to a Lease, unless it is "".
func writeAddress(l *leasing.Lease, address string) {
	if address == "" {
		return
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[addressAnnotation] = leasing.Holder(l) + " " + address
}

var errNotRunning = errors.New("this process takes no part in the election: Lease.Run is not running")

// leader is the last known state of the lease. It is safe for concurrent use.
type leader struct {
	mu        sync.Mutex
	started   bool
	lease     *leasing.Lease // from the last response; nil: none, or not known
	unrenewed time.Duration  // for how long another holder had not renewed it at the last response
	err       error          // of the last request; nil if it succeeded
}

// start records that Run has started.
func (l *leader) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = true
}

// observe records a response or an error. It returns the holders before and after it, and whether requests have begun
// to fail.
func (l *leader) observe(lease *leasing.Lease, unrenewed time.Duration, err error) (before, after string, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, failed = leasing.Holder(l.lease), err != nil && l.err == nil
	if l.err = err; err == nil {
		l.lease, l.unrenewed = lease, unrenewed
	}
	return before, leasing.Holder(l.lease), failed
}

// identity returns the holder, or why it is not known.
func (l *leader) identity() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.identityLocked()
}

func (l *leader) identityLocked() (string, error) {
	switch {
	case l.err != nil:
		return "", l.err
	case !l.started:
		return "", errNotRunning
	}
	return leasing.Holder(l.lease), nil
}

// address returns the address of the holder, or "" if it is not known.
func (l *leader) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	holder, _ := l.identityLocked()
	if holder == "" {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder, _ := l.identityLocked(); holder == "" || l.lease.Spec.AcquireTime == nil {
		return time.Time{}
	}
	return l.lease.Spec.AcquireTime.Time
}

// silence returns for how long another holder has not renewed the lease, by the local clock. It grows only with
// responses.
func (l *leader) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unrenewed
}
