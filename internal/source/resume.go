package source

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// resumption is the state of a scope that resumes from the content of an earlier run. That content is stale until the
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

// lifetime returns the timeout to request for a watch and the limit after which the scope closes it.
func (s *scope) lifetime() (asked, limit time.Duration) {
	if !s.resume.due {
		return s.watchTimeout(), s.src.cfg.MaxWatch
	}
	asked = resumeWatches[min(s.resume.watches, len(resumeWatches)-1)]
	return asked, asked + resumeGrace
}

// askHowFar reads the version that a resumed scope must reach. The watch is already open, so no later change is missed.
// On failure the watch continues, and a list follows later.
func (s *scope) askHowFar(ctx context.Context) error {
	if !s.resume.due || s.resume.version != "" {
		return nil
	}
	version, err := s.probe(ctx, false)
	if err != nil {
		s.log.InfoContext(ctx, "cannot ask how far to catch up", "error", err)
		return nil
	}
	if resourceversion.Older(version, s.seen) {
		return errRolledBack
	}
	s.resume.version = version
	s.checkResumed()
	return nil
}

// checkResumed ends the resumption when the watch has reached the target version.
func (s *scope) checkResumed() {
	if !s.resume.due || s.resume.version == "" || !resourceversion.AtLeast(s.seen, s.resume.version) {
		return
	}
	s.synced()
	s.report(Watching, ReasonWatching, nil)
}

// synced marks the content as complete and confirmed in this run.
func (s *scope) synced() {
	s.resume = resumption{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Synced = true
}

// stillResuming requests a list if the last watch of resumeWatches has ended before the target version.
func (s *scope) stillResuming(err error) {
	if !s.resume.due || err != errEnded && err != errEndedSoon && err != errLifetime && !errors.Is(err, ErrEnded) {
		return
	}
	if s.resume.watches++; s.resume.watches >= len(resumeWatches) {
		s.relist = true
	}
}
