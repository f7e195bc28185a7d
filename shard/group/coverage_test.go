package group

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/shard"
)

// TestOtherProgram checks that a member of another program or with other namespaces ends with an error of one line that
// shows both, and takes and writes nothing. Members that state nothing join.
func TestOtherProgram(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cover = coverage{Program: "gateways", Namespaces: []string{"web", "api", "web"}, Kinds: []string{"gateways"}}
		w.three(Options{})
		for i, tc := range []struct {
			cover coverage
			want  string
		}{
			{
				coverage{Program: "routes", Namespaces: []string{"api", "web"}},
				`this member is "routes" in api, web, and %s is "gateways" in api, web`,
			},
			{coverage{Program: "gateways"}, `this member is "gateways" in all namespaces, and %s is "gateways" in api, web`},
		} {
			w.cover = tc.cover
			p := w.start(fmt.Sprint("other", i), random(), Options{})
			w.play(3 * time.Second)
			<-p.ended
			shows := func(name string) bool { return strings.Contains(p.err.Error(), fmt.Sprintf(tc.want, name)) }
			if !errors.Is(p.err, ErrProgram) || !slices.ContainsFunc([]string{"one", "two", "three"}, shows) ||
				strings.Contains(p.err.Error(), "\n") {
				t.Errorf("It ended with %v.", p.err)
			}
		}
		for _, r := range w.server.Log().Requests {
			if strings.Contains(string(r.Body), "other") {
				t.Errorf("A member that was refused sent a %s of %s.", r.Verb, r.Name)
			}
		}
		w.within(0, 8, "it")
		w.cover = coverage{}
		former := w.start("former", random(), Options{})
		w.play(3 * time.Second)
		if former.g.Held().Len() != 2 {
			t.Errorf("A member that states nothing holds %s, with %v.", former.g.Held(), former.g.Status().Err)
		}
	})
}

// TestTwoProgramsAtOnce checks that of two programs that start at the same time only one joins, and that another one
// joins when all members have crashed.
func TestTwoProgramsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var all []*process
		for i := range 6 {
			w.cover = coverage{Program: fmt.Sprint("p", i%2)}
			all = append(all, w.start(fmt.Sprint(i), random(), Options{}))
		}
		w.play(10 * time.Second)
		w.within(0, 8, "the start")
		joined := map[string]int{}
		for _, p := range all {
			if p.g.Status().Member != "" {
				joined[p.g.coverage.Program]++
			} else if <-p.ended; !errors.Is(p.err, ErrProgram) {
				t.Errorf("%s ended with %v.", p.name, p.err)
			}
			p.set(func() { p.faults.killed = true })
			p.stop()
		}
		if len(joined) != 1 {
			t.Errorf("The members are of %v.", joined)
		}
		w.cover.Program = "p2"
		w.start("after", random(), Options{})
		w.within(20*time.Second, 8, "all have crashed")
	})
}

// TestRollOutKinds rolls out a release with other kinds, with each old member stopped only when a new one holds slots.
// Old members gain no slots meanwhile, and the report names what they leave uncovered. Every slot is held throughout.
func TestRollOutKinds(t *testing.T) {
	for _, tc := range []struct {
		reason    string
		old, new  []string
		uncovered string
	}{
		{"adds a kind", []string{"a"}, []string{"a", "b"}, "[b]"},
		{"removes a kind", []string{"a", "b"}, []string{"a"}, "[]"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.cover = coverage{Program: "p", Kinds: tc.old}
				one, two, three := w.three(Options{})
				old := []*process{one, two, three}
				w.cover = coverage{Program: "p", Kinds: tc.new}
				for i := range old {
					added := w.start(fmt.Sprint("new", i), random(), Options{})
					w.within(2*time.Second, 8, "a join")
					w.play(2 * time.Second)
					if err := added.g.Status().Err; added.g.Held().IsEmpty() || err != nil {
						t.Errorf("A new member holds %s, with %v.", added.g.Held(), err)
					}
					for _, m := range added.g.Status().Group.Members {
						want := tc.uncovered
						if strings.HasPrefix(m.Name, "new") {
							want = "[]"
						}
						if fmt.Sprint(m.Uncovered) != want {
							t.Errorf("%s leaves %v uncovered, want %s.", m.Name, m.Uncovered, want)
						}
					}
					before := make([]int, len(old))
					for j, p := range old {
						before[j] = p.g.Held().Len()
					}
					old[i].stop()
					w.within(time.Second, 8, "a leave")
					w.play(2 * time.Second)
					for j, p := range old {
						if held := p.g.Held().Len(); held > before[j] {
							t.Errorf("%s holds %d slots, and held %d.", p.name, held, before[j])
						}
					}
				}
				w.within(0, 8, "the end")
				u, err := w.server.Object(leaseResource, "a", "gateways")
				if err != nil || !strings.Contains(u.GetAnnotations()[recordAnnotation], `"format":1`) {
					t.Errorf("A member of the former release cannot read the record: %v, %v.", u.GetAnnotations(), err)
				}
			})
		})
	}
}

// TestReportCoverage checks that the report shows what a member states, and its load.
func TestReportCoverage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cover = coverage{Program: "p", Namespaces: []string{"x"}, Kinds: []string{"b", "a"}}
		load := 7
		w.load = func() (map[string]int, shard.Set) {
			return map[string]int{"x": load - 1, "y": 1}, shard.Layout{Slots: 8}.All()
		}
		w.start("one", random(), Options{})
		w.play(3 * time.Second)
		load = 8
		w.play(12 * time.Second)
		got, err := Read(t.Context(), w.server.Config(), "a", "gateways")
		if err != nil {
			t.Fatal(err)
		}
		m := got.Members[0]
		if m.Program != "p" || fmt.Sprint(m.Namespaces, m.Kinds) != "[x] [a b]" || m.Load == nil || *m.Load != 8 {
			t.Errorf("The report is %+v.", m)
		}
	})
}
