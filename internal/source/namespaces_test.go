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

// unselecting is a source that holds one of four slots of namespaces, at a server that does not select them.
func unselecting(t *testing.T, change ...func(*source.Config)) *slots {
	t.Helper()
	s := watchSlots(t, selecting{}, apiserver.Options{BookmarkInterval: time.Hour}, change...)
	s.hold(0)
	s.events()
	s.requests()
	return s
}

// add makes an object in a namespace, and the namespace.
func (s *slots) add(namespace, name string) {
	s.t.Helper()
	if _, err := s.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		s.t.Error(err)
	}
	s.addTo(namespace, name)
}

// addTo makes an object in a namespace that is there, or is not.
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

// TestOnlyNamespacesThatCome has a slot come with namespaces that were there, that are new, and that come while they
// are listed. Only they are listed, and everything is told once.
func TestOnlyNamespacesThatCome(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(*source.Config){"lists": byLists, "initial events": func(*source.Config) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := unselecting(t, how)
				more := others(1, 4)
				watch := s.server.HoldEvents(apiserver.Match{Verb: "watch"})
				s.add(more[0], "unseen")    // which only the list of namespaces tells
				s.addTo(more[3], "strange") // of whose namespace nobody tells but the watch
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

// TestNamespacesComeBack gains a slot that was held and lost before, with a namespace that is no object. Everything is
// listed once, and again while such objects are there.
func TestNamespacesComeBack(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(*source.Config){"lists": byLists, "initial events": func(*source.Config) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := watchSlots(t, selecting{}, apiserver.Options{BookmarkInterval: time.Hour}, how)
				s.hold(0, 1)
				fresh := others(1, 1)[0]
				s.addTo(fresh, "fresh") // by the watch, while it is held
				comes := func(want ...string) {
					t.Helper()
					s.hold(0)
					s.events()
					s.requests()
					s.hold(0, 1)
					s.expect("what comes back", s.events(), want)
				}
				for range 2 {
					comes("ADDED 1/fresh initial", "ADDED 1/o0 initial", "ADDED 1/o1 initial", "ADDED 1/o2 initial")
					if !slices.Contains(s.requests(), "list of [1]") {
						t.Error("not everything was listed")
					}
				}
				if err := s.server.Remove(configMaps, fresh, "fresh"); err != nil {
					t.Fatal(err)
				}
				for _, everything := range []bool{true, false} { // after the first list nobody knows of the namespace any more
					comes("ADDED 1/o0 initial", "ADDED 1/o1 initial", "ADDED 1/o2 initial")
					if slices.Contains(s.requests(), "list of [1]") != everything {
						t.Errorf("everything was listed: %t", !everything)
					}
				}
				s.check()
			})
		})
	}
}

// TestNoNamespaceThatComes gains a slot without a namespace, for which nothing has to be listed.
func TestNoNamespaceThatComes(t *testing.T) {
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

// TestNamespacesCannotBeListed says when everything is listed for a slot that comes.
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
		asked  int // times that namespaces were to be listed
		all    bool
	}{
		"they are forbidden": {
			match: namespaces, fault: apiserver.Answer(apiserver.Failure(403)), asked: 1,
			all: true,
		},
		"they fail": {
			match: namespaces, fault: apiserver.Answer(apiserver.Failure(500)), asked: 1,
			all: true,
		},
		"they are many":              {spread: true, asked: 1, all: true},
		"the version has expired":    {match: in(1), fault: apiserver.Answer(apiserver.Expired()), asked: 2},
		"the version always expires": {match: in(0), fault: apiserver.Answer(apiserver.Expired()), asked: 2, all: true},
		"one of them fails":          {match: in(1), fault: apiserver.Answer(apiserver.Failure(503)), asked: 1},
		"versions are not known":     {match: in(0), fault: apiserver.Answer(apiserver.Failure(400)), asked: 1, all: true},
		"lists of one are not known": {match: in(0), fault: apiserver.Answer(apiserver.Failure(501)), asked: 1, all: true},
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
					t.Errorf("told %q", got)
				}
				all := slices.Contains(s.requests(), "list of [1]")
				if asked != tc.asked || all != tc.all {
					t.Errorf("namespaces were asked for %d times, want %d; everything was listed: %t, want %t",
						asked, tc.asked, all, tc.all)
				}
				s.check()
			})
		})
	}
}
