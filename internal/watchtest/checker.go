package watchtest

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fairlead-io/fairlead/internal/store"
)

// Recording is the sequence of events that one subscriber has received.
type Recording struct {
	Name   string
	Events []Event
	// Filtered says that the subscriber or its source selects objects. Then an object may leave and come back, and W4
	// and W11 do not apply.
	Filtered bool
	// Sharded says that slots come and go. The objects of a slot that comes are Initial, even after SYNCED.
	Sharded bool
	// MaxWaiting is the maximum number of changes that were pending for the subscriber. Keys is the maximum number of
	// keys. If Keys is 0, W10 is not checked.
	MaxWaiting, Keys int
}

// Violation is a violation of an invariant.
type Violation struct {
	Invariant string // "W1" and so on
	Event     int    // index of the event; -1 if the violation is not about a single event
	Text      string
}

func (v Violation) Error() string { return v.Invariant + ": " + v.Text }

// Check checks a recording against W1, W2, W3, W5, W6, W10 and W11. It returns the state after all events.
func (r Recording) Check() (map[string]State, []Violation) {
	c := checker{
		have: map[string]State{}, last: map[string]string{}, dead: map[string]bool{}, filtered: r.Filtered,
		sharded: r.Sharded,
	}
	for i, e := range r.Events {
		if e.Type == store.Epoch {
			c.lastEpoch = i
		}
	}
	for i, e := range r.Events {
		c.at = i
		c.event(e)
	}
	c.at = -1
	if r.Keys > 0 && r.MaxWaiting > waitingPerKey*r.Keys+waitingFree {
		c.found("W10", "%d changes of %d keys waited", r.MaxWaiting, r.Keys)
	}
	return c.have, c.violations
}

// Bounds of the changes that may be pending for a slow subscriber: a deletion and an addition per key before and
// after an EPOCH, and a log of fixed size.
const (
	waitingPerKey = 4
	waitingFree   = 2048
)

// CheckAtRest is like Check and also checks W4: the state after all events equals that of the server and the cache.
func (r Recording) CheckAtRest(server, cache map[string]State) []Violation {
	folded, found := r.Check()
	if r.Filtered {
		return found
	}
	for _, side := range []struct {
		name string
		have map[string]State
	}{{"events", folded}, {"cache", cache}} {
		for _, d := range Difference(server, side.have) {
			found = append(found, Violation{"W4", -1, fmt.Sprintf("%s of %s: %s", side.name, r.Name, d)})
		}
	}
	return found
}

// Difference describes the keys in which two states differ, at most ten of them.
func Difference(server, have map[string]State) []string {
	keys := map[string]bool{}
	for k := range server {
		keys[k] = true
	}
	for k := range have {
		keys[k] = true
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if server[k] != have[k] && len(out) < 10 {
			out = append(out, fmt.Sprintf("%s is %s, the server has %s", k, have[k], server[k]))
		}
	}
	return out
}

// CheckEvents checks the events of a subscriber without a filter. It returns the state after all events, or the first
// violation.
func CheckEvents(events []store.Event) (map[store.Key]*store.Record, error) {
	// The source may select objects, which is not known here, so skip W11.
	r := Recording{Filtered: true, Events: make([]Event, 0, len(events))}
	have := map[store.Key]*store.Record{}
	for i, e := range events {
		if e.Prior != have[e.Key] {
			return have, fmt.Errorf("event %d, %s: W3: prior is %s, given last was %s", i, eventOf(e), StateOf(e.Prior),
				StateOf(have[e.Key]))
		}
		if e.Object != nil && e.Object.Key() != e.Key {
			return have, fmt.Errorf("event %d, %s: object has key %s", i, eventOf(e), e.Object.Key())
		}
		switch e.Type {
		case store.Added, store.Modified, store.Sync:
			have[e.Key] = e.Object
		case store.Deleted, store.Left:
			delete(have, e.Key)
		}
		r.Events = append(r.Events, eventOf(e))
	}
	if _, found := r.Check(); len(found) > 0 {
		v := found[0]
		return have, fmt.Errorf("event %d, %s: %w", v.Event, r.Events[max(0, v.Event)], v)
	}
	return have, nil
}

type checker struct {
	have       map[string]State
	last       map[string]string // last version by key, also of deleted objects
	dead       map[string]bool   // objects (key and UID) that were DELETED since the last EPOCH
	filtered   bool
	sharded    bool // slots come and go
	synced     bool
	initial    int
	at         int
	lastEpoch  int
	violations []Violation
}

func (c *checker) found(invariant, format string, args ...any) {
	c.violations = append(c.violations, Violation{invariant, c.at, fmt.Sprintf(format, args...)})
}

func (c *checker) event(e Event) {
	switch e.Type {
	case store.Synced:
		if c.synced {
			c.found("W6", "SYNCED a second time")
		}
		c.synced = true
		if e.Count != c.initial {
			c.found("W6", "SYNCED says %d initial objects, %d were given", e.Count, c.initial)
		}
		return
	case store.Epoch:
		clear(c.last)
		clear(c.dead)
		return
	case store.QuarantinedObject:
		return
	}
	given := c.have[e.Key]
	if e.Object == (State{}) {
		c.found("W2", "%s without an object", e)
		return
	}
	if e.Prior != given {
		c.found("W3", "%s: prior is %s, given last was %s", e, e.Prior, given)
	}
	c.version(e)
	c.cached(e)
	if e.Initial && (e.Type != store.Added || c.synced && !c.sharded) {
		c.found("W6", "%s is initial, after SYNCED or without being ADDED", e)
	}
	c.life(e, given)
}

// life checks W2 and W11 and applies the event to the state.
func (c *checker) life(e Event, given State) {
	incarnation := e.Key + " " + e.Object.UID
	switch e.Type {
	case store.Added:
		if given != (State{}) {
			c.found("W2", "%s of what is there: %s", e, given)
		}
		if c.dead[incarnation] && !c.filtered {
			c.found("W11", "%s of uid %s, which was DELETED before", e, e.Object.UID)
		}
		if e.Initial && !c.synced {
			c.initial++
		}
		c.have[e.Key] = e.Object
	case store.Modified, store.Sync:
		if given.UID != e.Object.UID {
			c.found("W2", "%s of uid %s, given was %s", e, e.Object.UID, given)
		}
		c.have[e.Key] = e.Object
	case store.Deleted:
		if given == (State{}) && !e.Inferred {
			c.found("W2", "%s of what was never given", e)
		}
		if given != (State{}) && given.UID != e.Object.UID {
			c.found("W2", "%s of uid %s, given was %s", e, e.Object.UID, given)
		}
		c.dead[incarnation] = true
		delete(c.have, e.Key)
	case store.Left:
		if given == (State{}) || given.UID != e.Object.UID {
			c.found("W2", "%s of what was not given: %s", e, given)
		}
		delete(c.have, e.Key)
	default:
		c.found("W2", "unknown type %d", e.Type)
	}
}

// version checks W1.
func (c *checker) version(e Event) {
	last, now := c.last[e.Key], e.Object.Version
	if last != "" && older(now, last) {
		c.found("W1", "%s comes after version %s", e, last)
	}
	if !e.Inferred { // an inferred deletion has the last known version, not one of its own
		c.last[e.Key] = now
	}
}

// cached checks W5. While the subscriber has not yet received an EPOCH, the cache may have lower versions.
func (c *checker) cached(e Event) {
	if !e.Looked || c.at < c.lastEpoch {
		return
	}
	switch {
	case e.Type == store.Left: // its slot may be back
	case e.Type == store.Deleted:
		if e.Cached.UID == e.Object.UID && !c.filtered {
			c.found("W5", "%s is handled, and the cache still has it", e)
		}
	case e.Cached != (State{}) && older(e.Cached.Version, e.Object.Version):
		c.found("W5", "%s is handled, and the cache has version %s", e, e.Cached.Version)
	}
}

// older reports whether version a is known to precede b.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
