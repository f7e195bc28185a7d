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
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/shard"
)

// Kind is the kind of a change.
type Kind string

// The kinds of changes.
const (
	Joined   Kind = "joined"      // this member is in the record
	Gained   Kind = "gained"      // it holds Slots, and its participants gain them
	Moving   Kind = "moving"      // its participants lose Slots
	Released Kind = "released"    // Slots were released
	Lost     Kind = "lost"        // it holds no slots any more because of Err, and joins again
	Died     Kind = "deadMembers" // it has found Member dead, with its Slots
	Left     Kind = "left"        // Run is about to return
)

// Change is the argument of Options.OnChange.
type Change struct {
	Kind   Kind
	Slots  shard.Set
	Member string // for Died
	Err    error  // for Lost
}

// Report describes a group, as `fairlead shards -o json` prints it.
type Report struct {
	Group   string         `json:"group"` // namespace/name
	Of      int            `json:"of"`    // slots
	Members []MemberReport `json:"members"`
	Moving  []Move         `json:"moving"`
}

// MemberReport describes a member of a group. Times are from the clock of that member.
type MemberReport struct {
	Name    string    `json:"name"`
	Slots   []int     `json:"slots"` // the slots that it holds
	Since   time.Time `json:"since"`
	Renewed time.Time `json:"renewed"`           // zero if its Lease does not exist
	Address string    `json:"address,omitempty"` // Options.Address
}

// Move is a slot whose target is not its holder. From and To are names of members, or "".
type Move struct {
	Slot int    `json:"slot"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Status is the state of a member as it knows it.
type Status struct {
	Member string    // the ID of the current incarnation; "" before it has joined
	Held   shard.Set // see Group.Held
	// Age is the time since the start of the last successful renewal. It is negative if this member has no Lease.
	Age time.Duration
	// Err has the errors of operations whose last attempt failed, or nil. It may match ErrForbidden, ErrLayout or
	// ErrLeader.
	Err error
	// Group is the last known state of the group.
	Group Report
}

// state is the data of Status and the metrics, which Group.mu guards.
type state struct {
	id     string
	record *record
	errs   map[string]error // by operation
	err    error            // the error of Run
	gained int              // slots gained in total
	moved  int              // slots released in total
	lost   int              // terms lost
}

func (g *Group) publish(fn func(*state)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn(&g.state)
}

// setError records the error of an operation that is retried, or its success if err is nil. It logs changes. A missing
// permission is logged once for all operations. It stays recorded while attempts get no response, as at the end of a
// term.
func (g *Group) setError(what string, err error) {
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

// isFinding reports whether an error describes the state of the group that the API server returned.
func isFinding(err error) bool {
	for _, finding := range []error{ErrForbidden, errRecord, ErrLayout, ErrLeader, errRecreated} {
		if errors.Is(err, finding) {
			return true
		}
	}
	return false
}

// leftBehind returns the log attributes for a Lease that could not be deleted. It returns none for a missing
// permission, which setError logs.
func leftBehind(err error) []any {
	if errors.Is(err, ErrForbidden) {
		return nil
	}
	return []any{"error", err}
}

// forbiddenLocked returns the recorded error for a missing permission on Leases, or nil. The caller holds g.mu.
func (g *Group) forbiddenLocked() error {
	for _, what := range slices.Sorted(maps.Keys(g.state.errs)) {
		if err := g.state.errs[what]; errors.Is(err, ErrForbidden) {
			return err
		}
	}
	return nil
}

// note records, logs and publishes a change. It does not log that a member without slots has lost its Lease because of
// a missing permission, which setError logs.
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
		g.events.enqueue(c)
	}
	if g.opt.OnChange != nil {
		g.opt.OnChange(c)
	}
}

// fail ends Run with an error. It ends the term without a handover.
func (g *Group) fail(err error, t *term) {
	g.publish(func(s *state) { s.err = errors.Join(s.err, err) })
	t.fail(err)
}

// fatal returns the error that ends Run, or nil.
func (g *Group) fatal() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.err
}

// Status returns what this member knows. It sends no request.
func (g *Group) Status() Status {
	g.mu.Lock()
	s := g.state
	g.mu.Unlock()
	out := Status{Member: s.id, Held: g.Held(), Age: -1, Err: s.err}
	for _, what := range slices.Sorted(maps.Keys(s.errs)) {
		out.Err = errors.Join(out.Err, s.errs[what])
	}
	if h := g.holds.Load(); h != nil {
		out.Age, _ = h.term.renewal.Age()
	}
	out.Group = Report{Group: g.opt.Namespace + "/" + g.opt.Name}
	if s.record == nil {
		s.record = fresh(g.layout, "")
	}
	out.Group.fill(s.record, func(id string) *lease {
		seen, _ := g.view.get(g.leaseOf(id))
		return seen.Lease()
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

// Read returns the state of a group without taking part in it. The error matches ErrNotGroup if there is no such group
// or the Lease is not a group. Other errors are those of an unreadable record and of requests.
func Read(ctx context.Context, cfg *rest.Config, namespace, name string) (*Report, error) {
	c, err := newClient(cfg, namespace, time.Minute)
	if err != nil {
		return nil, fmt.Errorf("cannot read the group %s/%s: %w", namespace, name, err)
	}
	return report(ctx, c, namespace, name)
}

// Report is [Read] for the group of this member.
func (g *Group) Report(ctx context.Context) (*Report, error) {
	return report(ctx, g.leases.WithTimeout(time.Minute), g.opt.Namespace, g.opt.Name)
}

func report(ctx context.Context, c *leasing.Client, namespace, name string) (*Report, error) {
	object, err := c.Get(ctx, name)
	if apierrors.IsNotFound(err) || err == nil && object.Annotations[roleAnnotation] == "" {
		if err == nil {
			err = errors.New("it names no role")
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
	all, err := c.List(ctx, Label, name)
	if err != nil {
		return nil, err
	}
	p := &Report{Group: namespace + "/" + name}
	p.fill(r, func(id string) *lease {
		if i := slices.IndexFunc(all.Items, func(l lease) bool { return l.Name == name+"-"+id }); i >= 0 {
			return &all.Items[i]
		}
		return nil
	})
	return p, nil
}
