package source

import "time"

// The lister and the watcher tell the loop of the scope what happens. These methods implement listProgress and
// watchProgress. They run in the goroutine of the scope.
var (
	_ listProgress  = (*scope)(nil)
	_ watchProgress = (*scope)(nil)
)

// contact records a useful response of the server and publishes the counters.
func (s *scope) contact() { s.condition.contact(s.pos.version(), &s.counts) }

func (s *scope) listStarted() { s.condition.resetUnreadable() }

// listOpened reports the phase Listing, unless the scope is degraded. A degraded scope recovers only when the list is
// complete.
func (s *scope) listOpened() {
	if phase := s.condition.phase(); phase == Connecting || phase == Watching {
		s.report(Listing, ReasonListing, nil)
	}
}

// listSynced marks the content as complete and confirmed in this run.
func (s *scope) listSynced() {
	s.resume.end()
	s.condition.synced()
}

func (s *scope) degraded(reason Reason, err error) { s.report(Degraded, reason, err) }

// repairing reports a repair without changing whether the scope is Degraded.
func (s *scope) repairing(reason Reason, err error) {
	phase := s.condition.phase()
	if phase != Degraded {
		phase = Connecting
		if s.relist {
			phase = Listing
		}
	}
	s.report(phase, reason, err)
}

func (s *scope) retrying(wait time.Duration, err error) {
	s.counts.Retries++
	s.condition.retryIn(wait)
	s.report(Degraded, reasonFor(err), err)
}

// watchOpened reports a watch that has no fault before it and content of this run. Others are reported when they work.
func (s *scope) watchOpened() {
	if s.condition.phase() != Degraded && !s.resume.isDue() {
		s.report(Watching, ReasonWatching, nil)
	}
}

func (s *scope) firstEvent()  { s.history.progress() }
func (s *scope) watchWorks()  { s.report(Watching, ReasonWatching, nil) }
func (s *scope) stayedOpen()  { s.history.stayedOpen() }
func (s *scope) requestList() { s.verify = true }

func (s *scope) caughtUp() {
	s.listSynced()
	s.report(Watching, ReasonWatching, nil)
}
