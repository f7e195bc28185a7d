package rights

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Right is a permission that a program needs from the API server.
type Right struct {
	// Kind is the kind of the objects.
	Kind schema.GroupVersionKind
	// Subresource is a subresource of the objects, such as status or scale. Empty means the objects themselves.
	Subresource string
	// Verbs are RBAC verbs, such as get, list, watch, create, update, patch and delete.
	Verbs []string
	// Names are the names of the objects. Empty means all objects.
	Names []string
	// Namespace is the only namespace of the right, such as that of a Lease. Empty means all namespaces in which the
	// program works.
	Namespace string
}

// Asker is implemented by types that declare their own rights, such as a Lease of package lease.
type Asker interface {
	Rights() []Right
}

// Of returns a right to all objects of a kind.
func Of(kind schema.GroupVersionKind, verbs ...string) Right { return Right{Kind: kind, Verbs: verbs} }

// Status returns a right to the status of all objects of a kind.
func Status(kind schema.GroupVersionKind, verbs ...string) Right {
	return Right{Kind: kind, Subresource: "status", Verbs: verbs}
}

// Events returns the right to write Kubernetes Events, as a reconcile.Recorder does.
func Events() Right {
	return Of(schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}, "create", "patch")
}

// Lease returns the rights to create, read and update one Lease, such as that of an election. Create cannot be
// restricted to the name.
func Lease(namespace, name string) []Right {
	one := Right{Kind: LeaseKind, Namespace: namespace, Names: []string{name}, Verbs: []string{"get", "update"}}
	return []Right{one, {Kind: LeaseKind, Namespace: namespace, Verbs: []string{"create"}}}
}

// LeaseKind is the kind of Leases.
var LeaseKind = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}

// nameless are the verbs that RBAC cannot restrict to names.
var nameless = []string{"create", "deletecollection"}

// Merge returns the same rights without duplicates, in a stable order. The result has one right for each kind,
// subresource, namespace and set of names, and none without verbs. A verb that a wider right allows, for all objects or
// all namespaces, is left out.
func Merge(all []Right) []Right {
	sets := map[string]*set{}
	for _, r := range all {
		for _, v := range r.Verbs {
			names := r.Names
			if slices.Contains(nameless, v) {
				names = nil
			}
			at := Right{Kind: r.Kind, Subresource: r.Subresource, Namespace: r.Namespace, Names: sorted(names)}
			s := sets[at.key()]
			if s == nil {
				s = &set{at: at, verbs: map[string]bool{}}
				sets[at.key()] = s
			}
			s.verbs[v] = true
		}
	}
	var out []Right
	for _, s := range sets {
		r := s.at
		for v := range s.verbs {
			if !s.covered(sets, v) {
				r.Verbs = append(r.Verbs, v)
			}
		}
		if slices.SortFunc(r.Verbs, byVerb); len(r.Verbs) > 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Right) int { return strings.Compare(a.key(), b.key()) })
	return out
}

// set has the verbs of the rights to the same objects.
type set struct {
	at    Right
	verbs map[string]bool
}

// covered reports whether a wider right allows the verb, too.
func (s *set) covered(sets map[string]*set, verb string) bool {
	for _, namespace := range []string{s.at.Namespace, ""} {
		for _, names := range [][]string{s.at.Names, nil} {
			wider := s.at
			wider.Namespace, wider.Names = namespace, names
			if at := wider.key(); at != s.at.key() && sets[at] != nil && sets[at].verbs[verb] {
				return true
			}
		}
	}
	return false
}

// key identifies the objects of a right. Its order puts rights without a namespace first, then orders by namespace,
// group and kind.
func (r Right) key() string {
	k := r.Kind
	return strings.Join(append([]string{r.Namespace, k.Group, k.Kind, k.Version, r.Subresource}, r.Names...), "\x00")
}

// sorted returns the names in order, without duplicates.
func sorted(names []string) []string {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// usual is the conventional order of verbs. Other verbs follow in alphabetical order.
var usual = []string{"*", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

func byVerb(a, b string) int {
	place := func(v string) int {
		if i := slices.Index(usual, v); i >= 0 {
			return i
		}
		return len(usual)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
}
