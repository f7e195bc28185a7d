package source_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
)

// unselecting returns a source with one of four slots by namespace, on a server that ignores shard selectors.
func unselecting(t *testing.T, change ...func(*source.Config)) *slots {
	t.Helper()
	s := watchSlots(t, selecting{}, apiserver.Options{BookmarkInterval: time.Hour}, change...)
	s.hold(0)
	s.events()
	s.requests()
	return s
}

// add creates an object and its namespace.
func (s *slots) add(namespace, name string) {
	s.t.Helper()
	if _, err := s.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		s.t.Error(err)
	}
	s.addTo(namespace, name)
}

// addTo creates an object in a namespace that may not exist.
func (s *slots) addTo(namespace, name string) {
	s.t.Helper()
	if _, err := s.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace,
		Name:      name,
	}}); err != nil {
		s.t.Error(err)
	}
}

// others returns n further namespaces of a slot.
func others(slot, n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if ns := fmt.Sprint("other", i); fourSlots.SlotOf(ns, "") == slot {
			names = append(names, ns)
		}
	}
	return names
}

// TestListsOnlyGainedNamespaces gains a slot whose namespaces existed before, are new, or are created during the list.
// The source lists only these namespaces and delivers each object once.
func TestListsOnlyGainedNamespaces(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(*source.Config){"lists": byLists, "initial events": func(*source.Config) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := unselecting(t, how)
				more := others(1, 4)
				watch := s.server.HoldEvents(apiserver.Match{Verb: "watch"})
				s.add(more[0], "unseen")    // only the list of namespaces has it
				s.addTo(more[3], "strange") // only the watch shows its namespace
				// between the version and the list of namespaces, and between those of objects
				before := func(m apiserver.Match, do func()) {
					m.Verb, m.Times = "list", 1
					s.server.On(m, apiserver.Before(func(context.Context, apiserver.Request) { do() }))
				}
				before(apiserver.Match{Resource: "namespaces"}, func() { s.add(more[1], "late") })
				before(apiserver.Match{Namespace: more[0]}, func() {
					s.add(more[2], "later")
					s.add(inSlot(1), "later")
				})
				s.hold(0, 1)
				s.expect("what has come", s.events(), []string{
					"ADDED 1/o0 initial", "ADDED 1/o1 initial", "ADDED 1/o2 initial", "ADDED 1/unseen initial",
				})
				in := func(namespace string) string { return "list in " + namespace + " from a version" }
				lists := slices.DeleteFunc(s.requests(), func(r string) bool { return strings.HasPrefix(r, "watch") })
				s.expect("lists", lists, []string{
					"list of [0 1]", "list namespaces", in(inSlot(1)), "list in " + inSlot(1) + " page 2", in(more[0]), in(more[1]),
				})
				watch.Release()
				s.expect("afterwards", s.events(), []string{"ADDED 1/late", "ADDED 1/later", "ADDED 1/later", "ADDED 1/strange"})
				s.check()
			})
		})
	}
}

// TestGainedSlotWithAMissingNamespace gains a slot that was held before, with a namespace that does not exist.
// Everything is listed once, and again while such objects exist.
func TestGainedSlotWithAMissingNamespace(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(*source.Config){"lists": byLists, "initial events": func(*source.Config) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := watchSlots(t, selecting{}, apiserver.Options{BookmarkInterval: time.Hour}, how)
				s.hold(0, 1)
				fresh := others(1, 1)[0]
				s.addTo(fresh, "fresh") // delivered by the watch while the slot is held
				gains := func(want ...string) {
					t.Helper()
					s.hold(0)
					s.events()
					s.requests()
					s.hold(0, 1)
					s.expect("what comes back", s.events(), want)
				}
				for range 2 {
					gains("ADDED 1/fresh initial", "ADDED 1/o0 initial", "ADDED 1/o1 initial", "ADDED 1/o2 initial")
					if !slices.Contains(s.requests(), "list of [1]") {
						t.Error("the list did not cover everything")
					}
				}
				if err := s.server.Remove(configMaps, fresh, "fresh"); err != nil {
					t.Fatal(err)
				}
				for _, everything := range []bool{true, false} { // after the first list the source has forgotten the namespace
					gains("ADDED 1/o0 initial", "ADDED 1/o1 initial", "ADDED 1/o2 initial")
					if slices.Contains(s.requests(), "list of [1]") != everything {
						t.Errorf("the list covered everything: %t", !everything)
					}
				}
				s.check()
			})
		})
	}
}

// TestGainedSlotWithoutNamespaces gains a slot without a namespace, which needs no list of objects.
func TestGainedSlotWithoutNamespaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := watchSlots(t, selecting{}, apiserver.Options{BookmarkInterval: time.Hour})
		for i := range 3 {
			s.remove(1, fmt.Sprint("o", i))
		}
		namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
		if err := s.server.Remove(namespaces, "", inSlot(1)); err != nil {
			t.Fatal(err)
		}
		s.hold(0)
		s.events()
		s.requests()
		s.hold(0, 1)
		s.expect("events", s.events(), nil)
		s.expect("requests", s.requests(), []string{"list of [0 1]", "list namespaces", "watch of [0 1] from a version"})
		s.put(1, "o", "")
		s.expect("afterwards", s.events(), []string{"ADDED 1/o"})
		s.check()
	})
}

// TestNamespacesCannotBeListed: a gained slot leads to a list of everything if its namespaces cannot be listed.
func TestNamespacesCannotBeListed(t *testing.T) {
	t.Parallel()
	namespaces := apiserver.Match{Verb: "list", Resource: "namespaces"}
	in := func(times int) apiserver.Match {
		return apiserver.Match{Verb: "list", Resource: "configmaps", Times: times, Func: func(r apiserver.Request) bool {
			return r.Namespace != ""
		}}
	}
	for name, tc := range map[string]struct {
		spread bool // each object in a namespace of its own
		match  apiserver.Match
		fault  apiserver.Fault
		asked  int // number of lists of namespaces
		all    bool
	}{
		"forbidden": {
			match: namespaces, fault: apiserver.Answer(apiserver.Failure(403)), asked: 1,
			all: true,
		},
		"the list fails": {
			match: namespaces, fault: apiserver.Answer(apiserver.Failure(500)), asked: 1,
			all: true,
		},
		"too many namespaces":        {spread: true, asked: 1, all: true},
		"the version has expired":    {match: in(1), fault: apiserver.Answer(apiserver.Expired()), asked: 2},
		"the version always expires": {match: in(0), fault: apiserver.Answer(apiserver.Expired()), asked: 2, all: true},
		"one of them fails":          {match: in(1), fault: apiserver.Answer(apiserver.Failure(503)), asked: 1},
		"versions are refused":       {match: in(0), fault: apiserver.Answer(apiserver.Failure(400)), asked: 1, all: true},
		"lists of one are refused":   {match: in(0), fault: apiserver.Answer(apiserver.Failure(501)), asked: 1, all: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := unselecting(t, byLists)
				want := 3
				if tc.spread {
					for _, ns := range others(1, 9) {
						s.add(ns, "o")
					}
					want += 9
				}
				asked := 0
				s.server.On(namespaces, apiserver.Before(func(context.Context, apiserver.Request) { asked++ }))
				if !tc.spread {
					s.server.On(tc.match, tc.fault)
				}
				s.events()
				s.hold(0, 1)
				if got := s.events(); len(got) != want {
					t.Errorf("events %q", got)
				}
				all := slices.Contains(s.requests(), "list of [1]")
				if asked != tc.asked || all != tc.all {
					t.Errorf("%d lists of namespaces, want %d; a list covered everything: %t, want %t",
						asked, tc.asked, all, tc.all)
				}
				s.check()
			})
		})
	}
}
