package source

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// reports is a Sink that records the reported states.
type reports struct {
	memory
	reported []string
}

func (r *reports) Report(st Status) {
	r.reported = append(r.reported, string(st.Phase)+"/"+string(st.Reason))
}

func newProgress() (*progress, *reports) {
	sink := &reports{}
	return &progress{
		log: discard(), sink: sink, condition: newCondition(""), counts: &Counters{}, pos: &position{},
		resume: &resumption{}, agenda: &agenda{},
	}, sink
}

// TestProgressAlone: events of a list or a watch change the state, and the sink gets each change once.
func TestProgressAlone(t *testing.T) {
	t.Parallel()
	fault := errors.New("fault")
	for reason, c := range map[string]struct {
		do   func(*progress)
		want []string
	}{
		"a list and a watch": {func(p *progress) {
			p.listOpened()
			p.listSynced()
			p.watchOpened()
			p.watchWorks()
		}, []string{"Listing/Listing", "Watching/Watching"}},
		"a degraded scope recovers when it works, not when it connects": {func(p *progress) {
			p.degraded(ReasonDisconnected, fault)
			p.listOpened()
			p.watchOpened()
			p.watchWorks()
		}, []string{"Degraded/Disconnected", "Watching/Watching"}},
		"a repair reports whether a list follows": {func(p *progress) {
			p.repairing(ReasonSilent, fault)
			p.agenda.requireList()
			p.repairing(ReasonExpired, fault)
		}, []string{"Connecting/Silent", "Listing/Expired"}},
		"a repair of a degraded scope": {func(p *progress) {
			p.degraded(ReasonDisconnected, fault)
			p.repairing(ReasonExpired, fault)
		}, []string{"Degraded/Disconnected", "Degraded/Expired"}},
		"a retry": {func(p *progress) {
			p.retrying(time.Minute, &APIError{Code: http.StatusForbidden})
		}, []string{"Degraded/Forbidden"}},
		"the content of an earlier run is not reported as watched before it is confirmed": {func(p *progress) {
			p.resume.begin()
			p.watchOpened()
			p.caughtUp()
		}, []string{"Watching/Watching"}},
		"slots are unknown, and then empty": {func(p *progress) {
			p.noSlots(false)
			if p.condition.current().Synced {
				p.degraded(ReasonServerError, errors.New("synced before slots are known"))
			}
			p.noSlots(true)
		}, []string{"Connecting/NoSlots", "Watching/NoSlots"}},
		"the end": {(*progress).stopped, []string{"Stopped/Ended"}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			p, sink := newProgress()
			p.begin(ReasonListing)
			c.do(p)
			if diff := cmp.Diff(append([]string{"Connecting/Listing"}, c.want...), sink.reported); diff != "" {
				t.Errorf("states, -want +got:\n%s", diff)
			}
		})
	}
	p, _ := newProgress()
	p.retrying(time.Minute, errors.New("fault"))
	if st := p.condition.current(); st.Counters.Retries != 1 || time.Until(st.Next) < 50*time.Second || st.Synced {
		t.Errorf("after a retry: %+v", st)
	}
	p.noSlots(true)
	if !p.condition.current().Synced {
		t.Error("a scope without slots is not synced")
	}
}

// TestAgendaAlone: faults lead to lists and waits, and lists end them.
func TestAgendaAlone(t *testing.T) {
	t.Parallel()
	delays := backoff.Policy{Base: time.Second, Cap: time.Minute}
	half := func() float64 { return 0.5 }
	var a agenda
	a.verifyContent()
	if a.mustList() || !a.isListDue() || a.isConsistent() {
		t.Errorf("to verify: %+v", a)
	}
	if a.unverified(); a.isListDue() {
		t.Error("an unreadable list is repeated")
	}
	if r, _ := a.repair(errRolledBack, delays, half); !r.relist || !a.mustList() || !a.isConsistent() ||
		a.reason() != ReasonExpired {
		t.Errorf("after a rollback: %+v", a)
	}
	if a.listed(); a.isListDue() || a.isConsistent() {
		t.Errorf("after a list: %+v", a)
	}

	var waits []time.Duration
	for range 3 {
		_, wait := a.repair(ErrStalled, delays, half)
		waits = append(waits, wait)
	}
	if waits[0] <= 0 || waits[1] <= waits[0] || waits[2] <= waits[1] || a.isListDue() {
		t.Errorf("waits %v, a list is due: %v", waits, a.isListDue())
	}
	a.watchProgressed()
	if _, wait := a.repair(ErrStalled, delays, half); wait != waits[0] {
		t.Errorf("a wait of %v after an event, want %v", wait, waits[0])
	}
	busy := &APIError{Code: http.StatusTooManyRequests, RetryAfter: time.Hour}
	if _, wait := a.repair(busy, delays, half); wait < maxRetryAfter || wait > 2*maxRetryAfter {
		t.Errorf("a wait of %v for a server that asks for an hour", wait)
	}

	a.startOver()
	for range maxStuck {
		a.needsProbe(ErrStalled, []byte("7"))
	}
	if a.needsProbe(ErrStalled, []byte("7")) {
		t.Error("a probe before a list that is due anyway")
	}
	a.listed()
	if !a.needsProbe(ErrStalled, []byte("7")) || a.needsProbe(ErrStalled, []byte("8")) {
		t.Error("a probe depends on the version at which watches fail")
	}
	if a.probed(); !a.mustList() || a.isConsistent() {
		t.Errorf("after a probe: %+v", a)
	}
}
