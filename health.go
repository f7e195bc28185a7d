package fairlead

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/reconcile"
)

// health judges whether the runtime is healthy and ready, from the state that its other parts report.
type health struct {
	of        view
	staleness time.Duration // age beyond which a state is stale
	log       *slog.Logger

	listedOnce atomic.Bool // every watched resource has been listed once, see readyToServe

	mu    sync.Mutex                 // not held while a function of a part or of view runs
	seen  map[*cache.Store]time.Time // first health check that saw the store
	parts []part
}

// view is the state of a runtime that health reads.
type view struct {
	phase       func() phase
	clusters    func() []*Host
	controllers func() []*reconcile.Controller
	serves      func() bool            // there are functions of AddAlways
	slots       func() error           // why this member of a group works correctly and still holds no slots
	leader      func() (string, error) // the leader; an error if this process cannot take over from it
}

// part is a readiness check of AddReady.
type part struct {
	name  string
	ready func() error
}

// addPart adds a readiness check.
func (h *health) addPart(name string, ready func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts = append(h.parts, part{name, ready})
}

// fill adds the phase and the problems to a status.
func (h *health) fill(s *inspect.Runtime) {
	now, lacking := h.lacking(h.of.phase())
	s.Phase, s.Problems, s.Conditions = string(now), h.stale(), h.refused(0)
	s.Lacking = append(lacking, h.unready()...)
}

func (h *health) healthz(w http.ResponseWriter, _ *http.Request) {
	answerHealth(w, h.stale(), strings.Join(append([]string{"ok"}, h.refused(0)...), "\n"))
}

func (h *health) readyz(w http.ResponseWriter, _ *http.Request) {
	problems := append(h.stale(), h.unready()...)
	now := h.of.phase()
	if now != phaseNew && now != phaseStopping && h.of.serves() {
		h.readyToServe(w, problems, now)
		return
	}
	now, lacking := h.lacking(now)
	answerHealth(w, slices.Concat(problems, h.refused(h.staleness), lacking), string(now))
}

// unready returns the names of the AddReady checks that fail, with the errors.
func (h *health) unready() []string {
	h.mu.Lock()
	parts := slices.Clone(h.parts)
	h.mu.Unlock()
	var problems []string
	for _, p := range parts {
		var err error
		if panicked := protect.Call(func() { err = p.ready() }); panicked != nil {
			h.log.Error("a part that was asked whether it is ready panicked", "name", p.name, "error", panicked)
			err = fmt.Errorf("it panicked: %v", panicked.Value)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", p.name, err))
		}
	}
	return problems
}

// readyToServe answers /readyz for a process that serves whether or not it leads. A process that becomes the leader
// starts more watches and stays ready meanwhile.
func (h *health) readyToServe(w http.ResponseWriter, stale []string, now phase) {
	if !h.listedOnce.Load() {
		unlisted := h.unlisted((*connection).needsNoService)
		for _, c := range h.of.clusters() {
			unlisted = append(unlisted, c.conn.cache.UntriedIndexes()...)
		}
		h.listedOnce.Store(len(unlisted) == 0)
		stale = append(stale, unlisted...)
	}
	now, lacking := h.lacking(now)
	answerHealth(w, stale, strings.Join(slices.Concat([]string{string(now)}, lacking, h.refused(0)), "\n"))
}

// lacking returns the phase, and the reasons why the process does not do all of its work or cannot take it over.
func (h *health) lacking(now phase) (_ phase, problems []string) {
	if err := h.of.slots(); err != nil && (now == phaseStarting || now == phaseReady) {
		return phase("standby: " + err.Error()), nil
	}
	switch now {
	case phaseStandby:
		leader, err := h.of.leader()
		if err != nil {
			return now, []string{"standby: " + err.Error()}
		}
		now = phase("standby: " + leader)
	case phaseReady:
		problems = append(h.unlisted(nil), h.blocked()...)
	case phaseStarting:
		problems = append(append(problems, string(now)), h.blocked()...)
		for _, c := range h.of.clusters() {
			problems = append(problems, c.observers.Unsynced()...)
		}
	default:
		problems = append(problems, string(now))
	}
	return now, problems
}

// blocked names the controllers that cannot work, except those that wait for a list; unlisted reports these.
func (h *health) blocked() []string {
	var problems []string
	for _, c := range h.of.controllers() {
		d := c.Describe(0)
		name := strings.TrimSpace(d.Cluster + " " + d.Name)
		switch {
		case d.Error != "":
			problems = append(problems, fmt.Sprintf("controller %s: %s: %s", name, d.State, d.Error))
		case d.State == inspect.StateNew:
			problems = append(problems, fmt.Sprintf("controller %s: %s", name, d.State))
		}
	}
	slices.Sort(problems)
	return problems
}

func answerHealth(w http.ResponseWriter, problems []string, fine string) {
	if len(problems) > 0 {
		text(w, http.StatusServiceUnavailable, strings.Join(problems, "\n"))
		return
	}
	text(w, http.StatusOK, fine)
}

// watched calls fn for every watched store. A process that does not lead watches nothing unless it has AddAlways
// functions.
func (h *health) watched(fn func(c *Host, name string, st *cache.Store)) {
	if now := h.of.phase(); now == phaseNew || now == phaseStandby && !h.of.serves() {
		return
	}
	for _, c := range h.of.clusters() {
		for _, st := range c.conn.stores() {
			fn(c, strings.TrimSpace(c.name+" "+st.Options().Resource.GroupResource().String()), st)
		}
	}
}

// stale names the scopes that the server has not confirmed for longer than the bound. The age of a scope without any
// answer counts from the start of its source, as its observers record it, or from the first call here. A resource that
// the server refuses is not stale, since a restart does not change that.
func (h *health) stale() []string {
	var problems []string
	check := func(name, namespace string, age time.Duration, reason, message string) {
		if age > h.staleness {
			problems = append(problems, strings.TrimSpace(fmt.Sprintf("%s %s: state is %v old: %s %s",
				name, namespace, age.Round(time.Second), reason, message)))
		}
	}
	for _, s := range describe(h.of.clusters()).Sources {
		name := strings.Join(append([]string{s.Cluster}, s.Selector...), " ")
		for _, st := range s.Status {
			if !st.Synced {
				check(name, st.Namespace, st.Silence, st.Reason, st.Message)
			}
		}
	}
	now := time.Now()
	seen := h.firstSeen(now)
	h.watched(func(_ *Host, name string, st *cache.Store) {
		first, ok := seen[st]
		if !ok { // listed since then
			return
		}
		for _, s := range st.Statuses() {
			age := s.Silence(now)
			if s.LastContact.IsZero() && !s.Refused() {
				age = now.Sub(first)
			}
			check(name, s.Namespace, age, string(s.Reason), s.Message)
		}
	})
	slices.Sort(problems)
	return slices.Compact(problems)
}

// refused names the scopes that the server refuses and whose state is older than the given age.
func (h *health) refused(older time.Duration) []string {
	var conditions []string
	now := time.Now()
	h.watched(func(_ *Host, name string, st *cache.Store) {
		for _, s := range st.Statuses() {
			if s.Refused() && s.Staleness(now) >= older {
				scope := strings.TrimSpace(name + " " + s.Namespace)
				conditions = append(conditions, fmt.Sprintf("%s: %s: %s", scope, s.Reason, s.Message))
			}
		}
	})
	slices.Sort(conditions)
	return slices.Compact(conditions)
}

// firstSeen returns the time of the first health check that saw each present store.
func (h *health) firstSeen(now time.Time) map[*cache.Store]time.Time {
	h.mu.Lock()
	before := h.seen
	h.mu.Unlock()
	seen := map[*cache.Store]time.Time{}
	h.watched(func(_ *Host, _ string, st *cache.Store) {
		seen[st] = now
		if at, ok := before[st]; ok {
			seen[st] = at
		}
	})
	h.mu.Lock()
	h.seen = seen
	h.mu.Unlock()
	return seen
}

// unlisted names the stores that were never listed completely, with the reasons. It considers the stores that only
// selects; nil selects all.
func (h *health) unlisted(only func(*connection, *cache.Store) bool) []string {
	var problems []string
	h.watched(func(c *Host, name string, st *cache.Store) {
		if only != nil && !only(&c.conn, st) {
			return
		}
		cluster := strings.TrimSuffix(name, st.Options().Resource.GroupResource().String())
		for _, why := range st.Unlisted() {
			problems = append(problems, cluster+why)
		}
	})
	slices.Sort(problems)
	return problems
}
