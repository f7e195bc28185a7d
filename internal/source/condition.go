package source

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// condition is the published Status of a scope. Only the goroutine of the scope writes it. Any goroutine may read it.
type condition struct {
	mu     sync.Mutex
	status Status

	unreadable    int   // objects quarantined since the last list began
	unreadableErr error // error of the first of them
}

func newCondition(namespace string) *condition {
	return &condition{
		status: Status{Namespace: namespace, Phase: Connecting, Reason: ReasonListing, Since: time.Now()},
	}
}

// set updates the condition at a version. err is nil if there is no fault. changed reports whether phase or reason have
// changed.
func (c *condition) set(
	phase Phase, reason Reason, err error, version []byte, counts *Counters,
) (status Status, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = c.status.Phase != phase || c.status.Reason != reason
	if changed {
		now := time.Now()
		if reason == ReasonNoSlots || c.status.Reason == ReasonNoSlots {
			c.status.LastContact = now // the age of the content of gained slots starts here
		}
		c.status.Phase, c.status.Reason, c.status.Since = phase, reason, now
	}
	c.status.Err, c.status.Message = err, message(err)
	if phase == Degraded && (reason == ReasonNotFound || reason == ReasonForbidden) {
		c.status.LastRefusal = time.Now()
	}
	if err == nil && phase == Watching {
		c.status.Message = c.unreadableMessageLocked()
	}
	c.status.Version = string(version)
	c.status.Counters = *counts
	return c.status, changed
}

// contact records a useful response of the server and publishes version and counters. It allocates only if the version
// has changed.
func (c *condition) contact(version []byte, counts *Counters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.LastContact = time.Now()
	if c.status.Version != string(version) {
		c.status.Version = string(version)
	}
	c.status.Counters = *counts
}

// restart clears the phase, so that the next set is a change.
func (c *condition) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Phase = ""
}

// retryIn publishes the time of the next attempt.
func (c *condition) retryIn(wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Next = time.Now().Add(wait)
}

// synced marks the content as complete and confirmed in this run.
func (c *condition) synced() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Synced = true
}

// addUnreadable counts an object that could not be read, for the message of the status.
func (c *condition) addUnreadable(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unreadable++; c.unreadable == 1 {
		c.unreadableErr = err
	}
	if c.status.Phase == Watching {
		c.status.Message = c.unreadableMessageLocked()
	}
}

// resetUnreadable restarts the count, without a change of the message.
func (c *condition) resetUnreadable() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unreadable, c.unreadableErr = 0, nil
}

func (c *condition) unreadableMessageLocked() string {
	switch c.unreadable {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 object could not be read: %v", c.unreadableErr)
	}
	return fmt.Sprintf("%d objects could not be read, the first: %v", c.unreadable, c.unreadableErr)
}

func (c *condition) current() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *condition) phase() Phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status.Phase
}

// message returns the server's message if err has one, else the text of err.
func message(err error) string {
	if err == nil {
		return ""
	}
	if api, ok := errors.AsType[*APIError](err); ok && api.ErrStatus.Message != "" {
		return api.ErrStatus.Message
	}
	return err.Error()
}
