package rights

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Right is something that a program asks of the API server.
type Right struct {
	// Kind is the kind of the objects.
	Kind schema.GroupVersionKind
	// Subresource is that of the objects, such as status or scale; empty: the objects themselves.
	Subresource string
	// Verbs are those of RBAC: get, list, watch, create, update, patch, delete and the like.
	Verbs []string
	// Names are the objects that it concerns; none: all of them.
	Names []string
	// Namespace is the only one in which it is needed, as that of a Lease; empty: wherever the program works.
	Namespace string
}

// Asker is what knows by itself what it asks, such as a Lease of package lease.
type Asker interface {
	Rights() []Right
}

// Of is the right to do something with all objects of a kind.
func Of(kind schema.GroupVersionKind, verbs ...string) Right { return Right{Kind: kind, Verbs: verbs} }

// Status is the right to do something with the status of all objects of a kind.
func Status(kind schema.GroupVersionKind, verbs ...string) Right {
	return Right{Kind: kind, Subresource: "status", Verbs: verbs}
}

// Events is the right to write Kubernetes Events, as a reconcile.Recorder does.
func Events() Right {
	return Of(schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}, "create", "patch")
}

// Lease is the right to take and to renew one Lease: that of an election.
func Lease(namespace, name string) []Right {
	one := Right{Kind: LeaseKind, Namespace: namespace, Names: []string{name}, Verbs: []string{"get", "update"}}
	return []Right{one, {Kind: LeaseKind, Namespace: namespace, Verbs: []string{"create"}}}
}

// LeaseKind is the kind of Leases.
var LeaseKind = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}

// nameless are the verbs that RBAC cannot restrict to names.
var nameless = []string{"create", "deletecollection"}

// Merge returns the same rights without repetition, in an order of their own: one for each kind, subresource, namespace
// and set of names, none without verbs. What is allowed of all objects, in all namespaces, is not said again of some.
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

// set is the verbs that are asked of the same objects.
type set struct {
	at    Right
	verbs map[string]bool
}

// covered says whether a wider right allows a verb, too.
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

// key orders rights: those of the whole cluster first, then by group and kind.
func (r Right) key() string {
	k := r.Kind
	return strings.Join(append([]string{r.Namespace, k.Group, k.Kind, k.Version, r.Subresource}, r.Names...), "\x00")
}

// sorted returns names in order, each once.
func sorted(names []string) []string {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// usual is the order in which verbs are read; others follow.
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
