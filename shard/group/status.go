package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/shard"
)

// Report describes a group, as `fairlead shards -o json` prints it.
type Report struct {
	Group   string         `json:"group"` // namespace/name
	Of      int            `json:"of"`    // slots
	Members []MemberReport `json:"members"`
	Moving  []Move         `json:"moving"`
	// Boundaries are the hashes at which the slots begin, such as "0x8000000000000000". They are empty for equal ranges.
	// Changing reports that they change: some slots have no member for a moment.
	Boundaries []string `json:"boundaries,omitempty"`
	Changing   bool     `json:"changing,omitempty"`
	// Dominant is a namespace with at least half of all objects, if there is one. It stays in one slot.
	Dominant *NamespaceReport `json:"dominant,omitempty"`
}

// NamespaceReport is the part of all objects that a namespace has.
type NamespaceReport struct {
	Namespace string `json:"namespace"`
	Objects   int    `json:"objects"`
	Of        int    `json:"of"`
}

// MemberReport describes a member of a group. Times are from the clock of that member.
type MemberReport struct {
	Name    string    `json:"name"`
	Slots   []int     `json:"slots"` // the slots that it holds
	Since   time.Time `json:"since"`
	Renewed time.Time `json:"renewed"`           // zero if its Lease does not exist
	Address string    `json:"address,omitempty"` // Options.Address
	// Program, Namespaces and Kinds are what the member states. They are empty for a member of the former release.
	Program    string   `json:"program,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"` // empty: all
	Kinds      []string `json:"kinds,omitempty"`
	// Uncovered are kinds that newer members cover, and that this one leaves out in its slots.
	Uncovered []string `json:"uncovered,omitempty"`
	Load      *int     `json:"load,omitempty"` // objects that the member holds; nil: not known
	// Unready are slots that the member holds and is not ready for, because of Reason.
	Unready []int  `json:"unready,omitempty"`
	Reason  string `json:"reason,omitempty"`
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

// newStatus describes what a member knows.
func newStatus(s snapshot) Status {
	out := Status{Member: s.known.id, Held: s.permit.held(s.layout), Age: s.permit.age(), Err: s.known.fatal}
	for _, what := range slices.Sorted(maps.Keys(s.known.errs)) {
		out.Err = errors.Join(out.Err, s.known.errs[what])
	}
	out.Group = Report{Group: s.group()}
	r := s.known.record
	if r == nil {
		r = fresh(s.layout, "")
	}
	out.Group.fill(r, func(id string) *lease {
		seen, _ := s.leaseOf(id)
		return seen.Lease()
	})
	return out
}

// fill sets all fields but Group. leaseOf returns the Lease of an incarnation, or nil.
func (p *Report) fill(r *record, leaseOf func(id string) *lease) {
	p.Of, p.Members, p.Moving = len(r.slots), []MemberReport{}, []Move{}
	names := map[string]string{}
	for _, m := range r.members {
		names[m.ID] = m.Name
		one := MemberReport{Name: m.Name, Slots: slices.AppendSeq([]int{}, r.heldBy(m.ID).Slots()), Since: m.Since}
		l := leaseOf(m.ID)
		if l != nil && l.Spec.RenewTime != nil {
			one.Renewed, one.Address = l.Spec.RenewTime.UTC(), l.Annotations[addressAnnotation]
		}
		if l != nil {
			if load, err := strconv.Atoi(l.Annotations[loadAnnotation]); err == nil {
				one.Load = &load
			}
			stated := readySlotsOf(l)
			if lacks, err := parseSet(r.layout, stated.Unready); err == nil && !lacks.IsEmpty() {
				one.Unready, one.Reason = slices.Collect(lacks.Slots()), stated.Reason
			}
		}
		c := coverageOf(l)
		one.Program, one.Namespaces, one.Kinds = c.Program, c.Namespaces, c.Kinds
		one.Uncovered = r.uncovered(m.ID, func(id string) coverage { return coverageOf(leaseOf(id)) })
		p.Members = append(p.Members, one)
	}
	p.Changing = r.goal != (shard.Layout{})
	if p.Boundaries = nil; r.layout.Version() > 0 {
		for _, start := range r.layout.Starts() {
			p.Boundaries = append(p.Boundaries, fmt.Sprintf("0x%016x", start))
		}
	}
	p.Dominant = r.dominant(leaseOf)
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
	defer c.Close()
	return report(ctx, c, namespace, name)
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
		if i := slices.IndexFunc(all.Items, func(l lease) bool { return l.Name == leaseName(name, id) }); i >= 0 {
			return &all.Items[i]
		}
		return nil
	})
	return p, nil
}
