package store_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// TestManyShapes: the built-in indexes give the same results before and after they get facets, and while objects are
// added, relabelled and deleted.
func TestManyShapes(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{Namespaced: true})
	sink := s.Sink("")
	make := func(i, version int, color string) thing {
		return thing{
			ns: fmt.Sprint("ns", i%7), name: fmt.Sprint("o", i), uid: fmt.Sprint("u", i), version: version,
			labels: fmt.Sprintf(`"color":%q,"id":"%d"`, color, i), owner: fmt.Sprint("owner", i/2),
		}
	}
	want := map[int]thing{}
	var things []thing
	for i := range 700 {
		want[i] = make(i, 10+i, []string{"red", "green"}[i%2])
		things = append(things, want[i])
	}
	list(t, sink, 1000, things...)
	check := func(when string) {
		t.Helper()
		for range 2 { // the first read makes the facets
			snap := s.Snapshot()
			color, ns, owner := []string{}, []string{}, []string{}
			for i, x := range want {
				if x.labels == fmt.Sprintf(`"color":"red","id":"%d"`, i) {
					color = append(color, x.key().String())
				}
				if x.ns == "ns3" {
					ns = append(ns, x.key().String())
				}
				if x.owner == "owner20" {
					owner = append(owner, x.key().String())
				}
			}
			for what, pair := range map[string][2][]string{
				"label":     {color, keysOf(snap.Index(store.IndexLabel, "color=red"))},
				"selector":  {color, keysOf(snap.Select(labels.SelectorFromSet(labels.Set{"color": "red"})))},
				"namespace": {ns, keysOf(snap.Index(store.IndexNamespace, "ns3"))},
				"in":        {ns, keysOf(snap.InNamespace("ns3"))},
				"owner":     {owner, keysOf(snap.Index(store.IndexOwner, "owner20"))},
			} {
				if d := cmp.Diff(sortStrings(pair[0]), pair[1]); d != "" {
					t.Errorf("%s: %s (-want +got):\n%s", when, what, d)
				}
			}
		}
	}
	check("after the list")
	version := 2000
	for i := 0; i < 700; i += 3 {
		version++
		switch i % 4 {
		case 0:
			want[i] = make(i, version, "red")
			apply(t, sink, source.Modified, want[i])
		case 1:
			x := want[i]
			x.version = version
			apply(t, sink, source.Deleted, x)
			delete(want, i)
		case 2:
			want[i+1000] = make(i+1000, version, "red")
			apply(t, sink, source.Added, want[i+1000])
		default:
			want[i] = make(i, version, "green")
			put(t, s, want[i])
		}
	}
	check("after changes and own writes")
}

// Facets are made in one go while shapes come and go, and no object is in them twice.
func TestFacetsAreMadeWhileShapesChange(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{Namespaced: true})
	sink := s.Sink("")
	shaped := func(i, version int, color string) thing {
		return thing{
			ns: "ns", name: fmt.Sprint("o", i), uid: fmt.Sprint("u", i), version: version,
			labels: fmt.Sprintf(`"color":%q,"id":"%d"`, color, version),
		}
	}
	const n = 2000
	var things []thing
	for i := range n {
		things = append(things, shaped(i, 10+i, "red"))
	}
	list(t, sink, n+10, things...)
	done, running := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for version, i := n+10, 0; ; i = (i + 1) % n {
			select {
			case <-done:
				return
			default:
			}
			version++
			x := shaped(i, version, []string{"red", "green"}[version%2])
			if version%10 == 0 {
				put(t, s, x)
			} else {
				apply(t, sink, source.Modified, x)
			}
			if version == n+100 {
				close(running)
			}
		}
	})
	<-running
	for range s.Snapshot().Index(store.IndexLabel, "color=red") { // makes the facets
		break
	}
	if !store.HasFacets(s) {
		t.Error("the first read does not make the facets")
	}
	close(done)
	wg.Wait()
	now := s.Snapshot()
	for _, color := range []string{"red", "green"} {
		var want []string
		for r := range now.All() {
			if c, _ := r.Label("color"); c == color {
				want = append(want, r.Key().String())
			}
		}
		if d := cmp.Diff(sortStrings(want), keysOf(now.Index(store.IndexLabel, "color="+color))); d != "" {
			t.Errorf("%s (-want +got):\n%s", color, d)
		}
	}
}
