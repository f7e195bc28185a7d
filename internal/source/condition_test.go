package source

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCondition: a change of phase or reason is reported once, and a fault carries the server's message.
func TestCondition(t *testing.T) { // not parallel: it counts allocations
	c, counts := newCondition("ns"), &Counters{Lists: 1}
	version := []byte("5")
	if _, changed := c.set(Connecting, ReasonListing, nil, version, counts); changed {
		t.Error("the initial condition is a change")
	}
	if c.restart(); c.phase() != "" {
		t.Error("a restart keeps the phase")
	}
	st, changed := c.set(Watching, ReasonWatching, nil, version, counts)
	if !changed || st.Version != "5" || st.Counters.Lists != 1 || st.Namespace != "ns" || st.Synced {
		t.Errorf("changed %v, %+v", changed, st)
	}
	denied := &APIError{Code: 403, ErrStatus: metav1.Status{Message: "user x cannot list"}}
	if _, changed := c.set(Degraded, ReasonForbidden, denied, version, counts); !changed || !c.current().Refused() {
		t.Errorf("changed %v, refused %v", changed, c.current().Refused())
	}
	if st, changed := c.set(Degraded, ReasonForbidden, denied, version, counts); changed ||
		st.Message != "user x cannot list" {
		t.Errorf("changed %v, message %q", changed, st.Message)
	}
	since := c.current().Since
	c.contact([]byte("6"), &Counters{Lists: 2})
	c.synced()
	if st := c.current(); st.Refused() || st.Version != "6" || st.Counters.Lists != 2 || !st.Synced || st.Since != since {
		t.Errorf("after a contact %+v", st)
	}
	if n := testing.AllocsPerRun(100, func() { c.contact([]byte("6"), counts) }); n != 0 {
		t.Errorf("a contact at the same version takes %v allocations", n)
	}
}

// TestConditionCountsUnreadableObjects: the message of a working watch contains their number, and a fault keeps its own
// message.
func TestConditionCountsUnreadableObjects(t *testing.T) {
	t.Parallel()
	c, counts := newCondition(""), &Counters{}
	message := func() string { return c.current().Message }
	c.addUnreadable(errors.New("first"))
	if message() != "" {
		t.Errorf("message %q before the watch", message())
	}
	c.set(Watching, ReasonWatching, nil, nil, counts)
	if want := "1 object could not be read: first"; message() != want {
		t.Errorf("message %q, want %q", message(), want)
	}
	c.addUnreadable(errors.New("second"))
	if want := "2 objects could not be read, the first: first"; message() != want {
		t.Errorf("message %q, want %q", message(), want)
	}
	c.set(Degraded, ReasonServerError, errors.New("fault"), nil, counts)
	if c.addUnreadable(errors.New("third")); message() != "fault" {
		t.Errorf("message %q, want that of the fault", message())
	}
	c.resetUnreadable()
	if c.set(Watching, ReasonWatching, nil, nil, counts); message() != "" {
		t.Errorf("message %q after a list", message())
	}
}

// TestConditionWithoutSlots: a scope without slots is never stale. Once it holds slots again, its age counts from then.
func TestConditionWithoutSlots(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		before func(*condition)
		phase  Phase
	}{
		"its slots are not known": {func(*condition) {}, Connecting},
		"it had contact before":   {func(c *condition) { c.contact(nil, &Counters{}) }, Watching},
		"the resource was refused then": {
			func(c *condition) { c.set(Degraded, ReasonForbidden, nil, nil, &Counters{}) },
			Watching,
		},
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cond, counts := newCondition(""), &Counters{}
				c.before(cond)
				<-time.After(time.Minute)
				cond.set(c.phase, ReasonNoSlots, nil, nil, counts)
				<-time.After(time.Hour)
				st := cond.current()
				if st.LastContact.IsZero() || st.Refused() || st.Silence(time.Now()) != 0 || st.Staleness(time.Now()) != 0 {
					t.Errorf("without slots: silent for %v, %+v", st.Silence(time.Now()), st)
				}
				cond.set(Degraded, ReasonDisconnected, errors.New("fault"), nil, counts)
				<-time.After(time.Second)
				if st := cond.current(); st.Silence(time.Now()) != time.Second {
					t.Errorf("with slots: silent for %v, want a second", st.Silence(time.Now()))
				}
			})
		})
	}
}
