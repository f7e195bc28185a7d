package source

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// resumption is what a scope that goes on from an earlier run has still to learn: what it holds is old until the watch
// has brought what happened meanwhile. Once the watch is open the server is asked for its version, and the scope counts
// as synced when the watch has come that far. As that version moves with other resources too, a bookmark usually says
// so; it comes shortly before a watch ends, hence the short ones at the beginning.
type resumption struct {
	due     bool
	version string // that must be reached; "": not asked yet
	watches int    // that have ended without reaching it
}

// resumeWatches are the lifetimes of the first watches of a resumed scope. The first brings a bookmark after a second
// or two. A server that takes etcd's own notes of progress for it has them every five seconds, so the second is longer.
// After that a list is sure, and costs what it would have cost without a resumption.
var resumeWatches = [...]time.Duration{3 * time.Second, 10 * time.Second}

// resumeGrace is how much longer than it was asked for a watch of these may last.
const resumeGrace = 2 * time.Second

// lifetime is for how long to ask the server to keep a watch open, and how long we do.
func (s *scope) lifetime() (asked, limit time.Duration) {
	if !s.resume.due {
		return s.watchTimeout(), s.src.cfg.MaxWatch
	}
	asked = resumeWatches[min(s.resume.watches, len(resumeWatches)-1)]
	return asked, asked + resumeGrace
}

// askHowFar asks the server for the version that a resumed scope must reach. The watch is open: nothing after it is
// missed. A server that does not say lets the watch go on all the same; a list will be needed then.
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

// checkResumed ends the resumption when the watch has brought everything up to the server's version.
func (s *scope) checkResumed() {
	if !s.resume.due || s.resume.version == "" || !resourceversion.AtLeast(s.seen, s.resume.version) {
		return
	}
	s.synced()
	s.report(Watching, ReasonWatching, nil)
}

// synced notes that the content is complete, and of this run.
func (s *scope) synced() {
	s.resume = resumption{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Synced = true
}

// stillResuming decides what becomes of a resumption when a watch has ended.
func (s *scope) stillResuming(err error) {
	if !s.resume.due || err != errEnded && err != errEndedSoon && err != errLifetime && !errors.Is(err, ErrEnded) {
		return
	}
	if s.resume.watches++; s.resume.watches >= len(resumeWatches) {
		s.relist = true
	}
}
