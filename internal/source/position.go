package source

import (
	"slices"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/shard"
)

// position is the place of a scope in the history of the server. It holds the last version seen, and the changes around
// it that the sink has received. The goroutine of the scope owns it; it has no lock.
type position struct {
	seen   []byte // last version seen; empty: none
	recent recent
	gains  []gain
}

// gain is a set of slots that were listed at a version that the watch has not reached yet.
type gain struct {
	slots   shard.Set
	version string
	only    *snapshot // namespaces that were listed; nil: all
}

// delivery says whether the sink needs a change of a watch.
type delivery uint8

const (
	deliverNew         delivery = iota // the sink does not have the change
	deliverOldDeletion                 // only the sink can tell a late deletion from a replay
	alreadyListed                      // the list of a gained slot includes the change
	replayed                           // the sink has the change, or a newer one of the object
)

// version returns the last version seen. The slice is valid until the position changes.
func (p *position) version() []byte { return p.seen }

// isUnknown reports whether no version has been seen.
func (p *position) isUnknown() bool { return len(p.seen) == 0 }

// isBehind reports whether the version seen is older than version.
func (p *position) isBehind(version string) bool { return resourceversion.Older(p.seen, version) }

// isAfter reports whether the version seen is newer than version.
func (p *position) isAfter(version string) bool { return resourceversion.Older(version, p.seen) }

// hasReached reports whether the version seen is version or newer.
func (p *position) hasReached(version string) bool { return resourceversion.AtLeast(p.seen, version) }

// isOrdered reports whether the versions of the server have an order.
func (p *position) isOrdered() bool {
	_, ordered := resourceversion.Compare(p.seen, p.seen)
	return ordered
}

// start sets the version from which a watch continues. Its changes are not known.
func (p *position) start(version string) { p.seen = append(p.seen[:0], version...) }

// complete records that the sink has everything up to version.
func (p *position) complete(version string) {
	p.start(version)
	p.recent.reset(version)
	p.dropReachedGains()
}

// prepareWatch makes the version seen the base for the detection of replays, unless there is one.
func (p *position) prepareWatch() {
	if p.recent.isEmpty() {
		p.recent.reset(string(p.seen))
	}
}

// forgetChanges drops everything but the version seen, which detects a rollback of history.
func (p *position) forgetChanges() { p.recent, p.gains = recent{}, nil }

// classify reports whether the sink needs a change. older reports that its version is older than the version seen.
func (p *position) classify(change ChangeType, o *Object, readable bool) (d delivery, older bool) {
	version := o.Header.ResourceVersion
	order, comparable := resourceversion.Compare(version, p.seen)
	replay := comparable && order <= 0 && !p.recent.isMissing(o) || !comparable && p.recent.has(change, version)
	switch {
	// A deletion may carry a version that the object had before. Only the sink can distinguish it from a replay.
	case replay && change == Deleted && readable && comparable && !p.recent.hasDeletion(o):
		return deliverOldDeletion, order < 0
	case replay:
		return replayed, order < 0
	case p.wasListed(change, o):
		return alreadyListed, false
	}
	return deliverNew, false
}

// record remembers a change that was passed to the sink.
func (p *position) record(change ChangeType, o *Object) { p.recent.add(change, o) }

// advance moves to a version of the watch, if it is newer.
func (p *position) advance(version []byte) {
	if !noVersion(version) && !resourceversion.Older(version, p.seen) && !foreign(version, p.seen) {
		p.seen = append(p.seen[:0], version...)
	}
	p.dropReachedGains()
}

// addGain records a list of gained slots.
func (p *position) addGain(g gain) {
	p.gains = append(p.gains, g)
	p.dropReachedGains()
}

// keepGains limits the gains to the slots in stay.
func (p *position) keepGains(stay shard.Set) {
	for i := range p.gains {
		p.gains[i].slots = p.gains[i].slots.Both(stay)
	}
	p.gains = slices.DeleteFunc(p.gains, func(g gain) bool { return g.slots.IsEmpty() })
}

// forgetGains drops all gains, because a list of all held slots was applied.
func (p *position) forgetGains() { p.gains = nil }

// dropReachedGains removes the gains whose version the watch has reached. From there on recent detects replays.
func (p *position) dropReachedGains() {
	if len(p.gains) == 0 {
		return
	}
	p.gains = slices.DeleteFunc(p.gains, func(g gain) bool {
		if !resourceversion.AtLeast(p.seen, g.version) {
			return false
		}
		p.recent.reached(g.version)
		return true
	})
}

// wasListed reports whether the list of a gained slot includes this change. For a deletion only the sink can tell,
// because servers may send it with the previous version of the object.
func (p *position) wasListed(change ChangeType, o *Object) bool {
	if change == Deleted {
		return false
	}
	h := &o.Header
	return slices.ContainsFunc(p.gains, func(g gain) bool {
		order, ok := resourceversion.Compare(h.ResourceVersion, g.version)
		return ok && order <= 0 && g.slots.HasBytes(h.Namespace, h.UID) && g.only.has(h.Namespace)
	})
}
