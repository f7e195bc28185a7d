// Package fairleadtest holds what users test their own controllers with: recorders and checkers.
package fairleadtest

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fairlead-io/fairlead/store"
)

// CheckEvents checks the events that one subscriber without a filter was given, in order, against the invariants W1, W2, W3
// and W6 of the architecture, and returns the state that they add up to (for W4), or the first violation.
func CheckEvents(events []store.Event) (map[store.Key]*store.Record, error) {
	c := checker{have: map[store.Key]*store.Record{}, last: map[store.Key]string{}}
	for i, e := range events {
		if err := c.event(e); err != nil {
			return c.have, fmt.Errorf("event %d, %s %s: %w", i, e.Type, e.Key, err)
		}
	}
	return c.have, nil
}

type checker struct {
	have   map[store.Key]*store.Record
	last   map[store.Key]string // version given last, also of what is gone
	synced bool
	count  int
}

func (c *checker) event(e store.Event) error {
	given := c.have[e.Key]
	switch e.Type {
	case store.Synced:
		if c.synced {
			return fmt.Errorf("W6: a second time")
		}
		c.synced = true
		if e.Count < len(c.have) && c.count < len(c.have) {
			return fmt.Errorf("W6: says %d initial objects, %d were given", e.Count, c.count)
		}
		return nil
	case store.Epoch:
		clear(c.last)
		return nil
	case store.QuarantinedObject:
		return nil
	}
	if e.Object == nil {
		return fmt.Errorf("no object")
	}
	if e.Object.Key() != e.Key {
		return fmt.Errorf("object has key %s", e.Object.Key())
	}
	if e.Prior != given {
		return fmt.Errorf("W3: prior is %s, given last was %s", describe(e.Prior), describe(given))
	}
	if err := c.version(e); err != nil {
		return err
	}
	if e.Initial && (e.Type != store.Added || c.synced) {
		return fmt.Errorf("W6: an initial object after SYNCED, or no ADDED")
	}
	switch e.Type {
	case store.Added:
		if given != nil {
			return fmt.Errorf("W2: ADDED of what is there: %s", describe(given))
		}
		if e.Initial {
			c.count++
		}
		c.have[e.Key] = e.Object
	case store.Modified, store.Sync:
		if given == nil || given.UID() != e.Object.UID() {
			return fmt.Errorf("W2: %s of another incarnation: %s became %s", e.Type, describe(given), describe(e.Object))
		}
		c.have[e.Key] = e.Object
	case store.Deleted:
		if given == nil && !e.Inferred {
			return fmt.Errorf("W2: DELETED of what was never given")
		}
		if given != nil && given.UID() != e.Object.UID() {
			return fmt.Errorf("W2: DELETED of another incarnation: %s, given was %s", describe(e.Object), describe(given))
		}
		delete(c.have, e.Key)
	default:
		return fmt.Errorf("unknown type")
	}
	return nil
}

// version checks W1.
func (c *checker) version(e store.Event) error {
	last, now := c.last[e.Key], e.Object.Version()
	if last != "" {
		if order, err := resourceversion.CompareResourceVersion(now, last); err == nil && order < 0 {
			return fmt.Errorf("W1: version %s after %s", now, last)
		}
	}
	if !e.Inferred { // a concluded deletion repeats what was given before, and no version of its own
		c.last[e.Key] = now
	}
	return nil
}

func describe(r *store.Record) string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s (uid %s, version %s)", r.Key(), r.UID(), r.Version())
}
