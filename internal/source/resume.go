package source

import (
	"errors"
	"time"
)

// resumption is the part of a scope that resumes from the content of an earlier run. That content is stale until the
// watch has delivered the changes since then. When the watch is open, the scope reads the server's version, and it is
// synced when the watch reaches that version. The version also advances with other resources, so usually a bookmark
// confirms it. Servers send a bookmark shortly before a watch ends, so the first watches are short.
type resumption struct {
	due     bool
	version string // target version; "": not known yet
	watches int    // watches that ended before the target version
}

// resumeWatches are the lifetimes of the first watches of a resumed scope. The first one usually gets a bookmark after
// one or two seconds. The second is longer, for servers that rely on etcd's progress notifications every five seconds.
// After these the scope lists, which costs no more than a start without resumption.
var resumeWatches = [...]time.Duration{3 * time.Second, 10 * time.Second}

// resumeGrace is how much longer than the requested timeout such a watch may stay open.
const resumeGrace = 2 * time.Second

// begin starts a resumption.
func (r *resumption) begin() { *r = resumption{due: true} }

// isDue reports whether the content of an earlier run is not confirmed yet.
func (r *resumption) isDue() bool { return r.due }

// needsTarget reports whether the version to reach is still to be read.
func (r *resumption) needsTarget() bool { return r.due && r.version == "" }

// setTarget sets the version to reach.
func (r *resumption) setTarget(version string) { r.version = version }

// isReached reports whether the watch has reached the target version.
func (r *resumption) isReached(pos *position) bool {
	return r.due && r.version != "" && pos.hasReached(r.version)
}

// end ends the resumption: the content is confirmed.
func (r *resumption) end() { *r = resumption{} }

// lifetime returns the timeout to request for a watch and the limit after which the client closes it.
func (r *resumption) lifetime() (asked, limit time.Duration) {
	asked = resumeWatches[min(r.watches, len(resumeWatches)-1)]
	return asked, asked + resumeGrace
}

// watchEnded counts a watch that ended before the target version. It reports whether a list is required, because the
// last of resumeWatches has ended.
func (r *resumption) watchEnded(err error) (list bool) {
	if !r.due || err != errEnded && err != errEndedSoon && err != errLifetime && !errors.Is(err, ErrEnded) {
		return false
	}
	r.watches++
	return r.watches >= len(resumeWatches)
}
