package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/shard"
)

// numbered returns n objects in as many namespaces, whose names end in a number.
func numbered(format string, n int) map[string]int {
	all := map[string]int{}
	for i := range n {
		all[fmt.Sprintf(format, i)] = 1
	}
	return all
}

// realNames are names as clusters have them, with very different numbers of objects.
func realNames() map[string]int {
	all := map[string]int{
		"kube-system": 120, "default": 7, "kube-public": 1, "monitoring": 210, "ingress-nginx": 24, "cert-manager": 18,
		"argocd": 60, "flux-system": 22, "istio-system": 75, "logging": 90, "vault": 12, "gitlab": 140, "harbor": 40,
	}
	for i, team := range []string{"payments", "search", "checkout", "catalog", "identity", "billing", "ml", "growth"} {
		for j, stage := range []string{"dev", "test", "staging", "prod"} {
			all[team+"-"+stage] = 5 + 7*i + 20*j
			all[fmt.Sprintf("%s-%s-eu-%d", team, stage, i)] = 3 + 11*j
		}
	}
	return all
}

// joined returns a record that n members have joined one after the other.
func joined(l shard.Layout, n int) *record {
	r := fresh(l, "")
	for i := range n {
		r, _ = change{join: &member{ID: fmt.Sprint("m", i), Weight: 1}, found: "uid"}.apply(r)
		r = settled(r)
	}
	return r
}

// settled returns the record after all members have followed it.
func settled(r *record) *record {
	for {
		before := r
		for _, m := range r.members {
			if left := r.heldBy(m.ID).Minus(r.targetsOf(m.ID)); !left.IsEmpty() {
				r, _ = change{from: m.ID, release: left}.apply(r)
			}
		}
		if r == before {
			return r
		}
	}
}

// histograms returns what the members of a record state of the objects.
func histograms(t interface{ Fatal(...any) }, r *record, objects map[string]int) (all []point) {
	for _, m := range r.members {
		held, own := r.heldBy(m.ID), map[string]int{}
		for namespace, n := range objects {
			if held.Has(namespace, "") {
				own[namespace] = n
			}
		}
		l := &lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			histogramAnnotation: newHistogram(own, held).encode(),
		}}}
		if n := len(l.Annotations[histogramAnnotation]); n > 4096 {
			t.Fatal("a histogram has ", n, " bytes")
		}
		_, points, ok := histogramOf(l)
		if !ok {
			t.Fatal("a histogram cannot be read: ", l.Annotations)
		}
		all = append(all, points...)
	}
	slices.SortFunc(all, func(a, b point) int {
		if a.hash < b.hash {
			return -1
		}
		return 1
	})
	return all
}

// share returns the largest share of the objects that a member has.
func share(r *record, objects map[string]int) float64 {
	var exact []point
	for namespace, n := range objects {
		exact = append(exact, point{shard.Hash(namespace), n})
	}
	return r.largestLoad(r.layout, exact)
}

// balanced returns the record after one change of the boundaries, and the number of its steps.
func balanced(t interface{ Fatal(...any) }, r *record, objects map[string]int) (next *record, steps int) {
	goal, err := r.layout.WithStarts(1, quantiles(histograms(t, r, objects), len(r.slots)))
	if err != nil {
		t.Fatal(err)
	}
	next, _ = change{goal: goal}.apply(r)
	next = settled(next)
	if next.goal != (shard.Layout{}) || !slices.Equal(next.layout.Starts(), goal.Starts()) {
		t.Fatal("the boundaries do not get where they are to be")
	}
	from := r.layout.Starts()
	for ; ; steps++ {
		if from, _, _ = step(from, goal.Starts()); from == nil {
			return next, steps
		}
	}
}

// TestLargestShare: by boundaries of the objects, the largest of four members has at most 35 % of the objects, whatever
// the namespaces are called, and after other namespaces have come and gone.
func TestLargestShare(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		objects map[string]int
	}{
		{"team-0 to team-99", numbered("team-%d", 100)},
		{"tenant-000 to tenant-099", numbered("tenant-%03d", 100)},
		{"real names", realNames()},
		{"many", numbered("customer-%04d-prod", 3000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := joined(shard.Layout{}, 4)
			before := share(r, tc.objects)
			r, steps := balanced(t, r, tc.objects)
			after := share(r, tc.objects)
			t.Logf("%.1f %% before, %.1f %% after %d steps", 100*before, 100*after, steps)
			if after > 0.35 {
				t.Errorf("the largest member has %.1f %%, and had %.1f %%", 100*after, 100*before)
			}
			if steps < 9 || steps > 12 {
				t.Errorf("it takes %d steps", steps)
			}
			// Members come and go without another change of the boundaries.
			five := settled(first(change{join: &member{ID: "m9", Weight: 1}}.apply(r)))
			if got := share(five, tc.objects); got > 0.35 {
				t.Errorf("with a fifth member the largest one has %.1f %%", 100*got)
			}
			// 1,000 namespaces come, and the boundaries follow them. The namespaces go, and the boundaries again.
			more := maps.Clone(tc.objects)
			maps.Copy(more, numbered("preview-%03d", 1000))
			r, _ = balanced(t, r, more)
			if got := share(r, more); got > 0.35 {
				t.Errorf("with 1,000 more namespaces the largest member has %.1f %%", 100*got)
			}
			r, steps = balanced(t, r, tc.objects)
			if got := share(r, tc.objects); got > 0.35 || steps > 20 {
				t.Errorf("after 1,000 namespaces have gone the largest member has %.1f %%, in %d steps", 100*got, steps)
			}
		})
	}
}

func first[T, U any](t T, _ U) T { return t }

// TestHistogram: a histogram has all objects, few points and the largest namespace, and is read as it was written.
func TestHistogram(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		objects := map[string]int{}
		want, largest := 0, 0
		for i := range rapid.IntRange(0, 300).Draw(t, "namespaces") {
			n := rapid.IntRange(0, 1<<rapid.IntRange(0, 20).Draw(t, "size")).Draw(t, "objects")
			objects[fmt.Sprint("ns-", i)] = n
			want, largest = want+n, max(largest, n)
		}
		all := shard.Layout{}.All()
		l := &lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			histogramAnnotation: newHistogram(objects, all).encode(),
		}}}
		h, points, ok := histogramOf(l)
		if !ok || total(points) != want || len(points) > maxPoints {
			t.Fatalf("of %d objects it has %d in %d points", want, total(points), len(points))
		}
		if h.Objects != largest || objects[h.Largest] != largest || h.Slots != all.String() || h.Version != 0 {
			t.Fatalf("the largest namespace has %d objects: %+v", largest, h)
		}
		starts := quantiles(points, 64)
		if _, err := all.Layout().WithStarts(1, starts); err != nil {
			t.Fatalf("%v: %x", err, starts)
		}
	})
}

func FuzzPoints(f *testing.F) {
	f.Add("1:2,a0:3")
	f.Add("ffffffffffffffff:4294967295")
	f.Fuzz(func(t *testing.T, text string) {
		points, err := parsePoints(text)
		if err != nil {
			return
		}
		if len(points) > maxPoints || !slices.IsSortedFunc(points, func(a, b point) int {
			if a.hash < b.hash {
				return -1
			}
			return 1
		}) {
			t.Fatalf("%q has the points %v", text, points)
		}
		if _, err := (shard.Layout{}).WithStarts(1, quantiles(points, 64)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// shareOf returns the largest share of the objects of a world that a process works on, and how many are worked on.
func (w *world) shareOf() (largest float64, worked int) {
	w.t.Helper()
	total := 0
	loads := map[string]int{}
	for namespace, n := range w.objects {
		total += n
		for _, p := range w.processes() {
			if p.worksOn(namespace) {
				loads[p.name] += n
				worked += n
			}
		}
	}
	for _, n := range loads {
		largest = max(largest, float64(n)/float64(total))
	}
	return largest, worked
}

// TestBalance: members share the objects of namespaces whose names have similar hashes, soon after they have started.
// They do so only once, while the objects stay.
func TestBalance(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.objects = numbered("team-%d", 100)
		o := Options{Layout: shard.Layout{Slots: 64}}
		four := []*process{w.start("four", random(), o)}
		w.three(o)
		begun := time.Now()
		for {
			if largest, worked := w.shareOf(); largest <= 0.35 && worked == 100 {
				break
			}
			if w.play(50 * time.Millisecond); time.Since(begun) > 20*time.Second || t.Failed() {
				t.Fatalf("after %v the shares are %v", time.Since(begun), first(w.shareOf()))
			}
		}
		version := four[0].g.Layout().Version()
		w.play(10 * time.Second)
		steps := strings.Count(w.logged(), "msg=moving")
		t.Logf("after %v; %d moves", time.Since(begun), steps)
		if n := strings.Count(w.logged(), "boundaries of slots change,"); n != 1 {
			t.Errorf("the boundaries changed %d times", n)
		}
		report, err := Read(t.Context(), w.server.Config(), "a", "gateways")
		if err != nil || len(report.Boundaries) != 64 || report.Changing || report.Dominant != nil {
			t.Errorf("the report is %+v, %v", report, err)
		}
		testbed.Settle(10 * time.Minute)
		if got := four[0].g.Layout().Version(); got != version {
			t.Errorf("the boundaries have version %d, and had %d", got, version)
		}
		w.within(0, 64, "a while")
	})
}

// TestDominant: the report names a namespace with half of all objects.
func TestDominant(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.objects = numbered("team-%d", 30)
		w.objects["big"] = 40
		w.three(Options{Layout: shard.Layout{Slots: 64}})
		w.play(30 * time.Second)
		report, err := Read(t.Context(), w.server.Config(), "a", "gateways")
		if want := (NamespaceReport{"big", 40, 70}); err != nil || report.Dominant == nil || *report.Dominant != want {
			t.Errorf("got %+v, %v", report.Dominant, err)
		}
		if largest, _ := w.shareOf(); largest > 0.7 {
			t.Errorf("the member with that namespace has %v of the objects", largest)
		}
		w.mu.Lock()
		w.objects = numbered("team-%d", 100)
		w.mu.Unlock()
		w.play(15 * time.Second)
		if report, err = Read(t.Context(), w.server.Config(), "a", "gateways"); err != nil || report.Dominant != nil {
			t.Errorf("without it: %+v, %v", report.Dominant, err)
		}
	})
}

// TestBalanceLater: boundaries change at most once in five minutes.
func TestBalanceLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.objects = numbered("team-%d", 100)
		w.three(Options{Layout: shard.Layout{Slots: 64}})
		w.play(30 * time.Second)
		if largest, _ := w.shareOf(); largest > 0.45 {
			t.Fatalf("the largest share is %v", largest)
		}
		w.mu.Lock()
		w.objects = numbered("tenant-%03d", 200)
		w.mu.Unlock()
		testbed.Settle(4 * time.Minute)
		if largest, _ := w.shareOf(); largest < 0.9 {
			t.Errorf("within five minutes the largest share is %v", largest)
		}
		w.play(90 * time.Second)
		if largest, _ := w.shareOf(); largest > 0.45 {
			t.Errorf("after five minutes the largest share is %v", largest)
		}
	})
}

// TestBalanceBusy: a slot with long work stops a change of the boundaries. The other slots work as before.
func TestBalanceBusy(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.objects = numbered("team-%d", 100)
		one, two, three := w.three(Options{Layout: shard.Layout{Slots: 64}})
		for _, p := range []*process{one, two, three} {
			p.set(func() { p.drain = 3 * time.Minute })
		}
		w.play(30 * time.Second)
		if !strings.Contains(w.logged(), "cannot change the boundaries of slots now") {
			t.Error("the change was not given up")
		}
		testbed.Settle(4 * time.Minute)
		w.within(0, 64, "a change that was given up")
		for _, p := range []*process{one, two, three} {
			p.set(func() { p.drain = 0 })
		}
		w.play(90 * time.Second)
		if largest, _ := w.shareOf(); largest > 0.45 {
			t.Errorf("when work is short again the largest share is %v", largest)
		}
	})
}

// TestBalanceWithFormerRelease: boundaries change only when each member knows them. A member that does not know them
// waits until the others have left.
func TestBalanceWithFormerRelease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.objects = numbered("team-%d", 100)
		o := Options{Layout: shard.Layout{Slots: 64}}
		former := o
		former.format = 2
		old := w.start("old", random(), former)
		one, two, three := w.three(o)
		w.play(2 * time.Minute)
		if one.g.Layout().Version() != 0 || old.g.Held().Len() != 16 {
			t.Errorf("with a member of the former release the boundaries have version %d, and it holds %s",
				one.g.Layout().Version(), old.g.Held())
		}
		old.stop()
		w.play(20 * time.Second)
		if largest, worked := w.shareOf(); largest > 0.45 || worked != 100 {
			t.Errorf("without it the largest share is %v, and %d objects are worked on", largest, worked)
		}
		old = w.start("old again", rand.New(rand.NewPCG(3, 4)), former)
		w.play(time.Minute)
		if held := old.g.Held(); !held.IsEmpty() || old.g.Status().Err == nil {
			t.Errorf("a member of the former release holds %s: %v", held, old.g.Status().Err)
		}
		w.within(0, 64, "the member that waits")
		for _, p := range []*process{one, two, three} {
			p.stop()
		}
		w.within(15*time.Second, 64, "the last member with boundaries")
		if !old.g.Held().IsAll() {
			t.Errorf("the member of the former release holds %s", old.g.Held())
		}
	})
}

// TestDeletedInBalance: a group that is deleted during a change of the boundaries is created with those that members
// hold slots by.
func TestDeletedInBalance(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.objects = numbered("team-%d", 100)
		one, _, _ := w.three(Options{Layout: shard.Layout{Slots: 64}})
		for one.g.Layout().Version() == 0 && !t.Failed() {
			w.play(10 * time.Millisecond)
		}
		w.removeGroup()
		w.play(40 * time.Second)
		w.within(0, 64, "a deletion")
		if one.g.Layout().Version() == 0 {
			t.Error("the boundaries are forgotten")
		}
		testbed.Settle(6 * time.Minute)
		if largest, worked := w.shareOf(); largest > 0.45 || worked != 100 {
			t.Errorf("later the largest share is %v, and %d objects are worked on", largest, worked)
		}
	})
}
