package source

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNamespacesOfSlots: gained slots are listed by namespace only if every known object is in an existing namespace.
func TestNamespacesOfSlots(t *testing.T) {
	t.Parallel()
	a, b := namespaceIn(fourSlots, 0), namespaceIn(fourSlots, 1)
	failed := errors.New("failed")
	for reason, c := range map[string]struct {
		seen       []string
		everything int
		pages      [][]string // names of namespaces on the server; nil: the request fails
		want       []string
		err        error
	}{
		"all exist":                    {[]string{a, b}, 100, [][]string{{a}, {b}}, []string{a}, nil},
		"one no longer exists":         {[]string{a, b, "gone"}, 100, [][]string{{a, b}}, nil, nil},
		"more namespaces than objects": {[]string{a}, 1, [][]string{{a, b}}, nil, nil},
		"not permitted":                {[]string{a}, 100, nil, nil, failed},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			n := &namespaces{isTracked: true}
			n.startList()
			for _, ns := range c.seen {
				n.saw([]byte(ns))
			}
			n.listedAll(c.everything)
			slots, page := fourSlots.Set(0), 0
			got, err := n.existing(&slots, func(q query, object func(*Object)) (m listMeta, err error) {
				if c.pages == nil {
					return m, failed
				}
				for _, name := range c.pages[page] {
					object(header("", name, "1"))
				}
				if page++; page < len(c.pages) {
					m.next = "more"
				}
				return m, nil
			})
			if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(got))); diff != "" || !errors.Is(err, c.err) {
				t.Errorf("error %v, namespaces, -want +got:\n%s", err, diff)
			}
		})
	}
}

// TestNamespacesSeen: a failed list removes no namespace, and a complete one removes those that it lacks.
func TestNamespacesSeen(t *testing.T) {
	t.Parallel()
	n := &namespaces{isTracked: true}
	if n.saw([]byte("early")); n.inhabited != nil {
		t.Error("namespaces are recorded before a list")
	}
	for i, c := range []struct {
		names []string
		err   error
		want  []string
	}{
		{[]string{"a", "b"}, nil, []string{"a", "b"}},
		{[]string{"c"}, errors.New("cut"), []string{"a", "b", "c"}},
		{[]string{"b"}, nil, []string{"b"}},
	} {
		ended := n.startList()
		for _, ns := range c.names {
			n.saw([]byte(ns))
		}
		ended(c.err)
		if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(n.inhabited))); diff != "" {
			t.Errorf("list %d, -want +got:\n%s", i, diff)
		}
	}
	if n.listedAll(600); !n.mayHelp(500) || n.mayHelp(600) {
		t.Error("lists by namespace help if everything takes more than a page")
	}
	if n.areTooMany(8) || !n.areTooMany(13) || n.areTooMany(12) {
		t.Error("a request costs as much as 50 objects")
	}
	if n.rejected(); n.mayHelp(500) {
		t.Error("namespaces are listed again at once after the server rejected it")
	}
	untracked := &namespaces{}
	untracked.startList()
	if untracked.saw([]byte("a")); untracked.inhabited != nil {
		t.Error("namespaces are recorded although slots are not by namespace")
	}
}
