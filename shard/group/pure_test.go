package group

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/shard"
)

var exact = cmp.Options{
	cmp.AllowUnexported(record{}, slot{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(shard.Layout{}),
}

func drawRecord(t *rapid.T) *record {
	r := fresh(shard.Layout{Slots: 1 << rapid.IntRange(0, 5).Draw(t, "bits")}, "")
	generations := rapid.IntRange(0, 2).Draw(t, "generations")
	for i := range rapid.IntRange(0, 6).Draw(t, "members") {
		r.members = append(r.members, member{
			ID: fmt.Sprint("m", i), Name: "n", Weight: rapid.IntRange(1, 4).Draw(t, "weight"),
			Since: time.Unix(int64(i), 0).UTC(), Leaving: rapid.IntRange(0, 4).Draw(t, "leaving") == 0,
			Coverage: rapid.IntRange(0, generations).Draw(t, "coverage"),
		})
	}
	who := rapid.SampledFrom(append([]string{""}, ids(r.members)...))
	for i := range r.slots {
		r.slots[i] = slot{who.Draw(t, "holder"), who.Draw(t, "next")}
	}
	r.founded = rapid.SampledFrom([]string{"", "uid"}).Draw(t, "founded")
	r.rev = rapid.Int64Range(0, 1<<40).Draw(t, "rev")
	if len(r.members) > 0 {
		if rapid.Bool().Draw(t, "has boundaries") {
			r.layout = drawBounds(t, r.layout, rapid.Int64Range(1, 1<<40).Draw(t, "version"))
		}
		if r.founded != "" && rapid.Bool().Draw(t, "has goal") {
			r.goal = drawBounds(t, r.layout, 1)
		}
	}
	return r
}

// drawBounds returns the layout with other boundaries: some are moved, and slots may be empty.
func drawBounds(t *rapid.T, l shard.Layout, version int64) shard.Layout {
	starts := l.Starts()
	for range rapid.IntRange(0, 2*len(starts)).Draw(t, "moved") {
		starts[rapid.IntRange(0, len(starts)-1).Draw(t, "slot")] = rapid.Uint64().Draw(t, "start")
	}
	slices.Sort(starts)
	starts[0] = 0
	l, err := l.WithStarts(version, starts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ids(members []member) (out []string) {
	for _, m := range members {
		out = append(out, m.ID)
	}
	return out
}

// TestAssignProperties: the slots are spread as the weights say, to within one; nobody else is given any; what was
// computed is computed again; and no more slots move than must. A member with an older coverage is given no further
// slots, and the newest ones have at least their share.
func TestAssignProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		next := assign(r.members, r.slots)
		count, total := map[string]int{}, 0
		for _, id := range next {
			count[id]++
		}
		for _, m := range r.members {
			if !m.Leaving {
				total += m.Weight
			}
		}
		moves, must := 0, 0
		quota, have := map[string]int{}, map[string]int{}
		newest, mixed := 0, false
		for _, m := range r.members {
			if !m.Leaving {
				quota[m.ID] = 0
				mixed = mixed || len(quota) > 1 && m.Coverage != newest
				newest = max(newest, m.Coverage)
			}
		}
		for _, s := range r.slots {
			have[present(quota, s)]++
		}
		for _, m := range r.members {
			if m.Leaving {
				if count[m.ID] > 0 {
					t.Fatalf("%s leaves and is given %d", m.ID, count[m.ID])
				}
				continue
			}
			exact := float64(len(r.slots)*m.Weight) / float64(total)
			if mixed && m.Coverage != newest && count[m.ID] > have[m.ID] {
				t.Fatalf("%s has %d slots, an older coverage, and is given %d", m.ID, have[m.ID], count[m.ID])
			}
			if diff := float64(count[m.ID]) - exact; diff <= -1 && (!mixed || m.Coverage == newest) || diff >= 1 && !mixed {
				t.Fatalf("%s is given %d, want about %v", m.ID, count[m.ID], exact)
			}
		}
		for i, s := range r.slots {
			now := present(quota, s)
			if next[i] != now {
				moves++
			}
			if total > 0 && next[i] == "" {
				t.Fatalf("slot %d is given to nobody", i)
			}
			if total == 0 && next[i] != "" {
				t.Fatalf("slot %d is given to %s", i, next[i])
			}
		}
		for id, n := range have {
			must += max(0, n-count[id])
		}
		if total > 0 && moves != must {
			t.Fatalf("%d slots move, %d must", moves, must)
		}
		again := slices.Clone(r.slots)
		for i := range again {
			again[i].next = next[i]
		}
		if diff := cmp.Diff(next, assign(r.members, again)); diff != "" {
			t.Fatalf("a second time it is otherwise: %s", diff)
		}
	})
}

// TestFewMoves: of equal members each that comes takes its share, and nothing else moves, however often.
func TestFewMoves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := fresh(shard.Layout{Slots: 64}, "")
		r.founded = "uid"
		for i := range rapid.IntRange(1, 40).Draw(t, "changes") {
			before := r
			stay := len(r.members)
			if stay == 0 || rapid.Bool().Draw(t, "join") {
				r, _ = change{join: &member{ID: fmt.Sprint("m", i), Weight: 1}}.apply(r)
				stay++
			} else {
				r, _ = change{drop: []string{rapid.SampledFrom(ids(r.members)).Draw(t, "who")}}.apply(r)
				stay--
			}
			moves := 0
			for i := range r.slots {
				if r.slots[i].next != before.slots[i].next {
					moves++
				}
			}
			most := max(stay, len(before.members))
			if bound := (64 + most - 1) / most; moves > bound && stay > 0 && len(before.members) > 0 {
				t.Fatalf("%d slots move where %d members become %d", moves, len(before.members), stay)
			}
		}
	})
}

func TestAssign(t *testing.T) {
	t.Parallel()
	one, two, three := member{ID: "a", Weight: 1}, member{ID: "b", Weight: 1}, member{ID: "c", Weight: 2}
	slots := func(text string) (out []slot) { // a slot is "holder" or "holder>next"
		for f := range strings.FieldsSeq(text) {
			holder, next, _ := strings.Cut(strings.ReplaceAll(f, "-", ""), ">")
			out = append(out, slot{holder, next})
		}
		return out
	}
	for _, tc := range []struct {
		reason  string
		members []member
		slots   string
		want    string
	}{
		{"Nobody is there.", nil, "- - - -", ",,,"},
		{"One has all.", []member{one}, "- - - -", "a,a,a,a"},
		{"Who has more keeps the odd one.", []member{one, two}, "b b b", "b,b,a"},
		{"The second takes half.", []member{one, two}, "a a a a", "a,a,b,b"},
		{"What moves already goes on.", []member{one, two}, "a>b a a>b a", "b,a,b,a"},
		{"The target has left: the holder keeps it.", []member{one}, "a>b a a>b a", "a,a,a,a"},
		{"Who weighs more takes more.", []member{one, two, three}, "a a a a", "a,b,c,c"},
		{"Who leaves is given nothing.", []member{{ID: "a", Weight: 1, Leaving: true}, two}, "a a", "b,b"},
		{"There are more members than slots.", []member{one, two, {ID: "d", Weight: 1}}, "d -", "d,a"},
	} {
		if got := strings.Join(assign(tc.members, slots(tc.slots)), ","); got != tc.want {
			t.Errorf("%s got %s, want %s", tc.reason, got, tc.want)
		}
	}
}

// TestApplyProperties: a change takes no slot from a member that neither lets it go nor is gone, unless no slot may be
// held any more. It gives a slot that is free to its target only in a record that is founded, or to the member that
// claims it only in one that is not. The boundaries of a slot change only while it has no holder.
func TestApplyProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		some := rapid.SampledFrom(append([]string{"nobody"}, ids(r.members)...))
		c := change{
			from: some.Draw(t, "from"), release: r.layout.Set(), claim: r.layout.Set(),
			found:   rapid.SampledFrom([]string{"", "uid"}).Draw(t, "found"),
			abandon: rapid.IntRange(0, 4).Draw(t, "abandon") == 0,
		}
		if rapid.Bool().Draw(t, "join") {
			c.join = &member{ID: "new", Weight: 1}
		}
		c.stay = rapid.Bool().Draw(t, "stays")
		if r.goal == (shard.Layout{}) && rapid.Bool().Draw(t, "new goal") {
			c.goal = drawBounds(t, r.layout, 1)
		}
		if rapid.Bool().Draw(t, "drops") {
			c.drop = []string{some.Draw(t, "drop")}
		}
		if rapid.Bool().Draw(t, "leaves") {
			c.leave = c.from
		}
		if rapid.Bool().Draw(t, "claims") {
			c.claim = r.layout.Set(rapid.IntRange(0, len(r.slots)-1).Draw(t, "claimed"))
		}
		if rapid.Bool().Draw(t, "releases") {
			c.release = r.layout.Set(rapid.IntRange(0, len(r.slots)-1).Draw(t, "slot"))
		}
		before := r.clone()
		next, changed := c.apply(r)
		if diff := cmp.Diff(before, r, exact); diff != "" {
			t.Fatalf("it has changed its argument: %s", diff)
		}
		if changed != (next.rev == r.rev+1) {
			t.Fatalf("changed is %t, the number goes from %d to %d", changed, r.rev, next.rev)
		}
		gives := false
		for i, s := range next.slots {
			was := r.slots[i].holder
			if s.holder == was {
				continue
			}
			free := was == "" || slices.Contains(c.drop, was) || c.abandon
			let := was == c.from && c.release.Holds(i)
			if !free && !let {
				t.Fatalf("slot %d is taken from %s", i, was)
			}
			claimed := s.holder == c.from && free && r.founded == "" && c.claim.Holds(i)
			if s.holder != "" && !claimed && (next.founded == "" || s.holder != s.next) {
				t.Fatalf("slot %d is given to %s", i, s.holder)
			}
			gives = gives || s.holder != "" && !let
		}
		same := r.layout.All().In(next.layout)
		for i, s := range next.slots {
			was := r.slots[i].holder
			free := was == "" || slices.Contains(c.drop, was) || c.abandon || was == c.from && c.release.Holds(i)
			if !same.Holds(i) && !free {
				t.Fatalf("slot %d of %s has other boundaries, and is then of %s", i, was, s.holder)
			}
		}
		if next.layout != r.layout && next.layout.Version() <= r.layout.Version() && len(next.members) > 0 {
			t.Fatalf("version %d of the boundaries follows %d", next.layout.Version(), r.layout.Version())
		}
		if got := c.gives(r, next); got != gives {
			t.Fatalf("it gives: %t, want %t", got, gives)
		}
		if again, changed := (change{}).apply(next); changed {
			t.Fatalf("a second change has something to do: %+v", again)
		}
		got, err := decode(next.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(next, got, exact); diff != "" {
			t.Fatalf("it is read otherwise: %s", diff)
		}
	})
}

func TestDecode(t *testing.T) {
	t.Parallel()
	r := fresh(shard.Layout{Slots: 4, By: shard.UID}, "l")
	r, _ = change{join: &member{ID: "a", Weight: 1}, found: "uid"}.apply(r)
	good := r.encode()
	for _, tc := range []struct {
		reason, old, new, want string
	}{
		{"It is as it was written.", "", "", ""},
		{"It is empty.", good, "", "JSON"},
		{"It is cut off.", good, good[:20], "JSON"},
		{"It is of a program to come.", `"format":1`, `"format":4`, "this program writes 3"},
		{"It has no form.", `"format":1`, `"format":0`, "format 0"},
		{"Its slots are no power of two.", `"of":4`, `"of":3`, "3 slots"},
		{"It has no slots.", `"of":4`, `"of":0`, "0 slots"},
		{"It is by an unknown field.", `"uid"`, `"name"`, "want namespace or uid"},
		{"A slot is none.", `"holds":"0-3"`, `"holds":"0-4"`, "no set of slots"},
		{"A set goes backwards.", `"holds":"0-3"`, `"holds":"3-0"`, "no set of slots"},
		{"A set is a word.", `"holds":"0-3"`, `"holds":"all"`, "no set of slots"},
		{"A slot is there twice.", `"holds":"0-3"`, `"holds":"0-3,1"`, "edited"},
		{"A slot has two holders.", `[{`, `[{"id":"b","weight":1,"holds":"1"},{`, "slot 1 is of b and of a"},
		{"A slot has two targets.", `[{`, `[{"id":"b","weight":1,"next":"1"},{`, "slot 1 is of b and of a"},
		{"A member has no name.", `"id":"a"`, `"id":""`, "there twice"},
		{"A member weighs nothing.", `"weight":1`, `"weight":0`, "weight 0"},
		{"A holder was taken away.", `"holds":"0-3"`, `"holds":"0-2"`, "edited"},
	} {
		text := good
		if tc.old != "" {
			text = strings.Replace(good, tc.old, tc.new, 1)
			if text == good {
				t.Fatalf("%s %q is not in %s", tc.reason, tc.old, good)
			}
		}
		_, err := decode(text)
		refused := errors.Is(err, errRecord) && strings.Contains(err.Error(), tc.want)
		if tc.want == "" && err != nil || tc.want != "" && !refused {
			t.Errorf("%s got %v, want %q", tc.reason, err, tc.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r, _ := change{join: &member{ID: "a", Weight: 1}, found: "uid"}.apply(fresh(shard.Layout{Slots: 4}, ""))
	f.Add(r.encode())
	f.Add(`{"format":1,"of":4,"by":"uid","members":[{"id":"a","weight":1,"holds":"0-9999999999"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := decode(text)
		if err != nil {
			if !errors.Is(err, errRecord) {
				t.Fatal(err)
			}
			return
		}
		if again, err := decode(r.encode()); err != nil || again.encode() != r.encode() {
			t.Fatalf("%q is read otherwise a second time: %v", text, err)
		}
	})
}
