package group

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// coverage is what a member works on in its slots. Each member states it in its Lease.
type coverage struct {
	Program    string   `json:"program"`              // Options.Program; "": the member states nothing
	Namespaces []string `json:"namespaces,omitempty"` // sorted; empty: all
	Kinds      []string `json:"kinds,omitempty"`      // sorted
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
// nothing may run the former release, which has no generations. All members then have generation 0.
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
