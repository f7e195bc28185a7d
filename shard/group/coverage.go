package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// ErrProgram means that a member of the group runs another program, or works in other namespaces. The work of one of
// them would stay undone in the slots of the other.
var ErrProgram = errors.New("the group has another program")

// errStopped means that a member of another program has not renewed its Lease since this one started. It may have
// stopped, so this member waits.
var errStopped = errors.New("another program has the group, or has had it")

// coverage is what a member works on in its slots. Each member states it in its Lease.
type coverage struct {
	Program    string   `json:"program"`              // Options.Program; "": the member states nothing
	Namespaces []string `json:"namespaces,omitempty"` // sorted; empty: all
	Kinds      []string `json:"kinds,omitempty"`      // sorted
}

// Cover states what this member works on, beside Options.Program. It must be called before Run. The group refuses
// members with other namespaces; none means all. Members may cover different kinds while a release is rolled out: slots
// then go to the members with the newest kinds first. load returns the number of objects that this member holds, for
// [Report]. It is called for each renewal and must not block; nil means that the number is not known.
func (g *Group) Cover(namespaces, kinds []string, load func() int) {
	sorted := func(names []string) []string {
		names = slices.Clone(names)
		slices.Sort(names)
		return slices.Compact(names)
	}
	g.coverage.Namespaces, g.coverage.Kinds, g.load = sorted(namespaces), sorted(kinds), load
}

// String returns the program and the namespaces.
func (c coverage) String() string {
	if len(c.Namespaces) == 0 {
		return fmt.Sprintf("%q in all namespaces", c.Program)
	}
	return fmt.Sprintf("%q in %s", c.Program, strings.Join(c.Namespaces, ", "))
}

func (c coverage) encode() string {
	text, _ := json.Marshal(c) // marshaling this type cannot fail
	return string(text)
}

// coverageOf returns what the member with a Lease states. It is the zero value if the member states nothing, or if the
// statement was edited.
func coverageOf(l *lease) (c coverage) {
	if l == nil || json.Unmarshal([]byte(l.Annotations[coverageAnnotation]), &c) != nil {
		return coverage{}
	}
	return c
}

// admission decides whether this member may join the members of a record. Only the goroutine of Run uses it.
type admission struct {
	client *leasing.Client
	view   *view
	opt    *Options
	own    coverage

	seen map[string]string // by member of another program: the version of its Lease when it was first read
}

// generation returns the generation of the coverage of this member, for member.Coverage. The error matches ErrProgram
// if this member may not join. dead are members that have stopped.
//
// The generation is that of a member with the same kinds. Kinds that no member has are the newest. A member that states
// nothing may be of the former release, which knows no generations: all members then have generation 0.
func (a *admission) generation(ctx context.Context, r *record, dead []string) (int, error) {
	if a.own.Program == "" {
		return 0, nil
	}
	newest, same, known := -1, -1, true
	for _, m := range r.members {
		if slices.Contains(dead, m.ID) {
			continue
		}
		l, err := a.lease(ctx, m.ID)
		other := coverageOf(l)
		switch {
		case err != nil:
			return 0, err
		case other.Program == "":
			known = false
			continue
		case other.Program != a.own.Program || !slices.Equal(other.Namespaces, a.own.Namespaces):
			cause := errStopped
			if a.hasRenewed(m.ID, l) {
				cause = ErrProgram
			}
			return 0, fmt.Errorf("cannot take part in the group %s/%s: %w: this member is %v, and %s is %v", a.opt.Namespace,
				a.opt.Name, cause, a.own, m.Name, other)
		case slices.Equal(other.Kinds, a.own.Kinds):
			same = max(same, m.Coverage)
		}
		newest = max(newest, m.Coverage)
	}
	switch {
	case same >= 0:
		return same, nil
	case !known:
		return 0, nil
	}
	return newest + 1, nil
}

// hasRenewed reports whether the Lease of a member has changed since the first call for that member.
func (a *admission) hasRenewed(id string, l *lease) bool {
	first, ok := a.seen[id]
	if !ok {
		a.seen[id] = l.ResourceVersion
	}
	return ok && first != l.ResourceVersion
}

// lease returns the Lease of a member, or nil if it does not exist.
func (a *admission) lease(ctx context.Context, id string) (*lease, error) {
	name := leaseName(a.opt.Name, id)
	if s, ok := a.view.get(name); ok {
		return s.Lease(), nil
	}
	got, err := a.client.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return got, err
}

// uncovered returns the kinds that the newest members of a record cover and the member with an ID does not. stated
// returns what a member states.
func (r *record) uncovered(id string, stated func(id string) coverage) []string {
	own, newest := r.member(id), r.newest()
	if own.Coverage == newest {
		return nil
	}
	has := stated(id).Kinds
	var missing []string
	for _, m := range r.members {
		if m.Coverage != newest {
			continue
		}
		for _, kind := range stated(m.ID).Kinds {
			if !slices.Contains(has, kind) && !slices.Contains(missing, kind) {
				missing = append(missing, kind)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// newest returns the highest generation of a coverage of the members.
func (r *record) newest() (n int) {
	for _, m := range r.members {
		n = max(n, m.Coverage)
	}
	return n
}

// normalize subtracts the lowest generation of a member from all of them. So only the record of a group whose members
// cover different kinds has generations, and needs the newer format.
func (r *record) normalize() {
	if len(r.members) == 0 {
		return
	}
	least := r.members[0].Coverage
	for _, m := range r.members {
		least = min(least, m.Coverage)
	}
	for i := range r.members {
		r.members[i].Coverage -= least
	}
}
