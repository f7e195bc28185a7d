package source

import (
	"context"
	"log/slog"
	"time"
)

// progress publishes the state of a scope: it updates the condition and tells the sink. The lister and the watcher
// report to it what happens. The goroutine of the scope owns it.
type progress struct {
	log       *slog.Logger
	sink      Sink
	condition *condition
	counts    *Counters
	pos       *position
	resume    *resumption
	agenda    *agenda
}

var (
	_ listProgress  = (*progress)(nil)
	_ watchProgress = (*progress)(nil)
)

// report updates the condition. It calls the sink when phase or reason change. err is nil if there is no fault.
func (p *progress) report(phase Phase, reason Reason, err error) {
	status, changed := p.condition.set(phase, reason, err, p.pos.version(), p.counts)
	if !changed {
		return
	}
	level := slog.LevelInfo
	switch phase {
	case Degraded:
		level = slog.LevelWarn
	case Connecting, Listing, Stopped: // the usual course
		level = slog.LevelDebug
	}
	p.log.Log(context.Background(), level, "source state changed", "phase", phase, "reason", reason,
		"message", status.Message, "version", status.Version)
	p.sink.Report(status)
}

// begin reports the first state, which is a change.
func (p *progress) begin(reason Reason) {
	p.condition.restart()
	p.report(Connecting, reason, nil)
}

func (p *progress) stopped() { p.report(Stopped, ReasonEnded, nil) }

// noSlots reports that no slot is held. If that is known for certain, no object is missing.
func (p *progress) noSlots(isAssigned bool) {
	if !isAssigned {
		p.report(Connecting, ReasonNoSlots, nil)
		return
	}
	p.listSynced()
	p.report(Watching, ReasonNoSlots, nil)
}

// contact records a useful response of the server and publishes the counters.
func (p *progress) contact() { p.condition.contact(p.pos.version(), p.counts) }

func (p *progress) listStarted() { p.condition.resetUnreadable() }

// listOpened reports the phase Listing, unless the scope is degraded. A degraded scope recovers only when the list is
// complete.
func (p *progress) listOpened() {
	if phase := p.condition.phase(); phase == Connecting || phase == Watching {
		p.report(Listing, ReasonListing, nil)
	}
}

// listSynced marks the content as complete and confirmed in this run.
func (p *progress) listSynced() {
	p.resume.end()
	p.condition.synced()
}

func (p *progress) degraded(reason Reason, err error) { p.report(Degraded, reason, err) }

// repairing reports a repair without changing whether the scope is Degraded.
func (p *progress) repairing(reason Reason, err error) {
	phase := p.condition.phase()
	if phase != Degraded {
		phase = Connecting
		if p.agenda.mustList() {
			phase = Listing
		}
	}
	p.report(phase, reason, err)
}

// waits publishes the time of the next attempt.
func (p *progress) waits(wait time.Duration) {
	p.counts.Retries++
	p.condition.retryIn(wait)
}

func (p *progress) retrying(wait time.Duration, err error) {
	p.waits(wait)
	p.report(Degraded, reasonFor(err), err)
}

// watchOpened reports a watch that has no fault before it and content of this run. Others are reported when they work.
func (p *progress) watchOpened() {
	if p.condition.phase() != Degraded && !p.resume.isDue() {
		p.report(Watching, ReasonWatching, nil)
	}
}

func (p *progress) firstEvent()  { p.agenda.watchProgressed() }
func (p *progress) watchWorks()  { p.report(Watching, ReasonWatching, nil) }
func (p *progress) stayedOpen()  { p.agenda.watchStayedOpen() }
func (p *progress) requestList() { p.agenda.verifyContent() }

func (p *progress) caughtUp() {
	p.listSynced()
	p.report(Watching, ReasonWatching, nil)
}
