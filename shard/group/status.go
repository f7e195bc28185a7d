package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/shard"
)

// Kind is what has changed for a member.
type Kind string

// The kinds of changes.
const (
	Joined   Kind = "joined"   // this member is in the record
	Gained   Kind = "gained"   // it holds Slots, and its participants are told
	Moving   Kind = "moving"   // its participants lose Slots
	Released Kind = "released" // Slots are let go
	Lost     Kind = "lost"     // it holds nothing any more, for Err, and joins again
	Buried   Kind = "buried"   // it has found Member dead, which held Slots
	Left     Kind = "left"     // Run is about to return
)

// Change is what Options.OnChange is told, by any goroutine.
type Change struct {
	Kind   Kind
	Slots  shard.Set
	Member string // Buried
	Err    error  // Lost
}

// Report is what a group is like, as `fairlead shards -o json` prints it.
type Report struct {
	Group   string         `json:"group"` // namespace/name
	Of      int            `json:"of"`    // slots
	Members []MemberReport `json:"members"`
	Moving  []Move         `json:"moving"`
}

// MemberReport is a member of a group. Times are those of its clock.
type MemberReport struct {
	Name    string    `json:"name"`
	Slots   []int     `json:"slots"` // that it holds
	Since   time.Time `json:"since"`
	Renewed time.Time `json:"renewed"`           // zero: its Lease is not there
	Address string    `json:"address,omitempty"` // Options.Address
}

// Move is a slot that is to be held by another member than now, by their names; "" is nobody.
type Move struct {
	Slot int    `json:"slot"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Status is what a member knows.
type Status struct {
	Member string    // the ID of the present incarnation in the group; "" before it has joined
	Held   shard.Set // as Group.Held
	// Age is how long ago the last renewal that succeeded was begun; negative if this member has no Lease.
	Age time.Duration
	// Err is why this member cannot do something, since it was tried last: errors.Is tells ErrForbidden,
	// ErrLayout and ErrLeader. nil: all is well.
	Err error
	// Group is what was seen of the group last.
	Group Report
}

// state is what Status shows.
type state struct {
	id     string
	record *record
	errs   map[string]error // by what was tried
	err    error            // what Run has returned
	gained int              // slots, all told
	moved  int              // slots let go
	lost   int              // terms
}

func (g *Group) publish(fn func(*state)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn(&g.state)
}

// trouble notes, and logs when it is new, why something that is tried again does not work; nil: it does. A missing right
// is logged once, whatever is refused because of it. It stays known while tries get no answer, as they do at the end of a
// term.
func (g *Group) trouble(what string, err error) {
	g.mu.Lock()
	before, known := g.state.errs[what], g.forbiddenLocked() != nil
	if errors.Is(before, ErrForbidden) && err != nil && !isFinding(err) {
		err = before
	}
	errs := maps.Clone(g.state.errs)
	if errs == nil {
		errs = map[string]error{}
	}
	errs[what] = err
	if err == nil {
		delete(errs, what)
	}
	g.state.errs = errs
	g.mu.Unlock()
	switch {
	case errors.Is(err, ErrForbidden) && known:
	case err != nil && (before == nil || before.Error() != err.Error()):
		g.log.Error("cannot "+what+" now", "error", err)
	case err == nil && before != nil:
		g.log.Info("can " + what + " again")
	}
}

// isFinding reports whether an error tells of the group as the API server has shown it.
func isFinding(err error) bool {
	for _, finding := range []error{ErrForbidden, errRecord, ErrLayout, ErrLeader, errBefore} {
		if errors.Is(err, finding) {
			return true
		}
	}
	return false
}

// leftBehind returns the attributes of a log line about a Lease that could not be deleted; none for a missing right,
// which trouble logs.
func leftBehind(err error) []any {
	if errors.Is(err, ErrForbidden) {
		return nil
	}
	return []any{"error", err}
}

// forbiddenLocked returns the error that the right to Leases is missing, nil if it is not; the caller holds mu.
func (g *Group) forbiddenLocked() error {
	for _, what := range slices.Sorted(maps.Keys(g.state.errs)) {
		if err := g.state.errs[what]; errors.Is(err, ErrForbidden) {
			return err
		}
	}
	return nil
}

// note tells of a change. A member that has no slot and loses its Lease since it lacks the right to renew it is told by
// trouble.
func (g *Group) note(c Change) {
	quiet := false
	g.publish(func(s *state) {
		quiet = c.Kind == Lost && c.Slots.IsEmpty() && g.forbiddenLocked() != nil
		switch c.Kind {
		case Gained:
			s.gained += c.Slots.Len()
		case Released:
			s.moved += c.Slots.Len()
		case Lost:
			s.lost++
			s.id = ""
		}
	})
	level, attrs := slog.LevelInfo, []slog.Attr{}
	if c.Slots.Len() > 0 {
		attrs = append(attrs, slog.String("slots", c.Slots.String()))
	}
	if c.Member != "" {
		attrs = append(attrs, slog.String("dead", c.Member))
	}
	if c.Err != nil {
		level, attrs = slog.LevelWarn, append(attrs, slog.Any("error", c.Err))
	}
	if !quiet {
		g.log.LogAttrs(context.Background(), level, string(c.Kind), attrs...)
		g.events.tell(c)
	}
	if g.opt.OnChange != nil {
		g.opt.OnChange(c)
	}
}

// fail ends Run with an error, and the term without handing over.
func (g *Group) fail(err error, t *term) {
	g.publish(func(s *state) { s.err = errors.Join(s.err, err) })
	t.fail(err)
}

// fatal is why Run cannot go on.
func (g *Group) fatal() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.err
}

// Status returns what this member knows, without a request.
func (g *Group) Status() Status {
	g.mu.Lock()
	s := g.state
	g.mu.Unlock()
	out := Status{Member: s.id, Held: g.Held(), Age: -1, Err: s.err}
	for _, what := range slices.Sorted(maps.Keys(s.errs)) {
		out.Err = errors.Join(out.Err, s.errs[what])
	}
	if h := g.holds.Load(); h != nil {
		out.Age = h.term.renewed.Load().atMost(g.clock.now())
	}
	out.Group = Report{Group: g.opt.Namespace + "/" + g.opt.Name}
	if s.record == nil {
		s.record = fresh(g.layout, "")
	}
	out.Group.fill(s.record, func(id string) *lease {
		seen, _ := g.view.get(g.leaseOf(id))
		return seen.lease
	})
	return out
}

func (p *Report) fill(r *record, leaseOf func(id string) *lease) {
	p.Of, p.Members, p.Moving = len(r.slots), []MemberReport{}, []Move{}
	names := map[string]string{}
	for _, m := range r.members {
		names[m.ID] = m.Name
		one := MemberReport{Name: m.Name, Slots: slices.AppendSeq([]int{}, r.heldBy(m.ID).Slots()), Since: m.Since}
		if l := leaseOf(m.ID); l != nil && l.Spec.RenewTime != nil {
			one.Renewed, one.Address = l.Spec.RenewTime.UTC(), l.Annotations[addressAnnotation]
		}
		p.Members = append(p.Members, one)
	}
	for i, s := range r.slots {
		if s.holder != s.next {
			p.Moving = append(p.Moving, Move{i, names[s.holder], names[s.next]})
		}
	}
}

// Read returns what a group is like, without taking part in it. Errors are ErrNotGroup, also for one that there is none
// of, errRecord, and those of requests.
func Read(ctx context.Context, cfg *rest.Config, namespace, name string) (*Report, error) {
	c, err := typed.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot read the group %s/%s: %w", namespace, name, err)
	}
	return leases{client: c, namespace: namespace, timeout: time.Minute}.report(ctx, name)
}

// Report is [Read] of the group itself.
func (g *Group) Report(ctx context.Context) (*Report, error) {
	return leases{client: g.leases.client, namespace: g.opt.Namespace, timeout: time.Minute}.report(ctx, g.opt.Name)
}

func (l leases) report(ctx context.Context, name string) (*Report, error) {
	namespace := l.namespace
	object, err := l.get(ctx, name)
	if apierrors.IsNotFound(err) || err == nil && object.Annotations[roleAnnotation] == "" {
		if err == nil {
			err = errors.New("it does not say a role")
		}
		return nil, fmt.Errorf("cannot read the group %s/%s: %w: %w", namespace, name, ErrNotGroup, err)
	}
	if err != nil {
		return nil, err
	}
	r, err := decode(object.Annotations[recordAnnotation])
	if err != nil {
		return nil, err
	}
	all, _, err := l.list(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &Report{Group: namespace + "/" + name}
	p.fill(r, func(id string) *lease {
		for i := range all {
			if all[i].Name == name+"-"+id {
				return &all[i]
			}
		}
		return nil
	})
	return p, nil
}
