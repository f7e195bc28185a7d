package shard_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/shard"
)

// selects says whether an API server selects an object by a selector of ours, with the code that the server has.
func selects(t interface{ Fatal(...any) }, s shard.Set, o *metav1.PartialObjectMetadata) bool {
	text := s.Selector()
	if text == "" {
		return true
	}
	var reqs []sharding.ShardRangeRequirement
	for _, part := range strings.Split(text, " || ") {
		args := strings.Split(strings.TrimSuffix(strings.TrimPrefix(part, "shardRange("), ")"), ", ")
		if len(args) != 3 {
			t.Fatal("odd selector", text)
		}
		reqs = append(reqs, sharding.ShardRangeRequirement{
			Key: args[0], Start: strings.Trim(args[1], "'"), End: strings.Trim(args[2], "'"),
		})
	}
	ok, err := sharding.NewSelector(reqs...).Matches(o)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// TestSetAgreesWithServer holds the hash, the slots and the selector to the code of the API server.
func TestSetAgreesWithServer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := layouts(t, 1)
		s := l.Set(rapid.SliceOfDistinct(rapid.IntRange(0, l.Slots-1), rapid.ID[int]).Draw(t, "slots")...)
		o := &metav1.PartialObjectMetadata{}
		o.Namespace = rapid.StringMatching(`[a-z0-9-]{0,20}`).Draw(t, "namespace")
		o.UID = types.UID(rapid.StringMatching(`[a-f0-9-]{0,36}`).Draw(t, "uid"))
		has := s.Has(o.Namespace, o.UID)
		if got := s.HasBytes([]byte(o.Namespace), []byte(o.UID)); got != has {
			t.Fatalf("as bytes %t, as strings %t", got, has)
		}
		if !s.IsEmpty() && shard.Hash(o.Namespace) != 0 && shard.Hash(string(o.UID)) != 0 {
			if got := selects(t, s, o); got != has {
				t.Fatalf("the server selects it: %t, we: %t", got, has)
			}
		}
		if got := s.Holds(l.SlotOf(o.Namespace, o.UID)); got != has {
			t.Fatalf("its slot is in the set: %t, it is: %t", got, has)
		}
	})
}

// layouts returns a layout with equal or other boundaries.
func layouts(t *rapid.T, version int64) shard.Layout {
	l := shard.Layout{
		By:    shard.By(rapid.IntRange(0, 1).Draw(t, "by")),
		Slots: 1 << rapid.IntRange(0, 10).Draw(t, "bits"),
	}
	return moved(t, l, version)
}

// moved returns the layout with some of its boundaries, or others.
func moved(t *rapid.T, l shard.Layout, version int64) shard.Layout {
	if rapid.Bool().Draw(t, "equal ranges") {
		return l
	}
	starts := l.Starts()
	for range rapid.IntRange(0, l.Slots).Draw(t, "moved") {
		starts[rapid.IntRange(0, l.Slots-1).Draw(t, "slot")] = rapid.Uint64().Draw(t, "start")
	}
	slices.Sort(starts)
	starts[0] = 0
	l, err := l.WithStarts(version, starts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestBoundaries: each hash is in exactly the slot whose range has it, and survives a change of other boundaries.
func TestBoundaries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := layouts(t, 1)
		starts := l.Starts()
		h := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom(starts),
			rapid.Map(rapid.SampledFrom(starts), func(start uint64) uint64 { return start - 1 })).Draw(t, "hash")
		has := func(l shard.Layout, slot int) bool {
			starts := l.Starts()
			return starts[slot] <= h && (slot == l.Slots-1 || h < starts[slot+1])
		}
		for slot := range starts {
			if is := l.SlotOfHash(h) == slot; is != has(l, slot) {
				t.Fatalf("hash %x is in slot %d: %t, its range has it: %t", h, slot, is, !is)
			}
		}
		next := moved(t, l, 2)
		all := l.All().In(next)
		if all.Layout() != next {
			t.Fatal("the set has another layout")
		}
		for slot := range all.Slots() {
			if has(l, slot) != has(next, slot) {
				t.Fatalf("hash %x is in one range of slot %d only", h, slot)
			}
		}
		for slot := range next.All().Minus(all).Slots() {
			from, to := next.Starts(), append(next.Starts()[1:], 0)
			if from[slot] == starts[slot] && to[slot] == append(starts[1:], 0)[slot] {
				t.Fatalf("slot %d has not changed, and is missing", slot)
			}
		}
	})
}

// TestVersions: layouts of the same boundaries are equal, and sets take the newer ones.
func TestVersions(t *testing.T) {
	t.Parallel()
	equal := shard.Layout{Slots: 4}
	with := func(version int64, starts ...uint64) shard.Layout {
		l, err := equal.WithStarts(version, starts)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one, two := with(1, 0, 1<<62, 1<<63, 3<<62), with(2, 0, 7, 1<<63, 1<<63)
	if one != with(1, 0, 1<<62, 1<<63, 3<<62) || one == equal || one == with(2, 0, 1<<62, 1<<63, 3<<62) ||
		one.Version() != 1 {
		t.Error("layouts are not equal if and only if their boundaries and versions are")
	}
	if got, want := one.All().In(equal), equal.All(); got != want {
		t.Errorf("equal ranges of another version: got %v, want %v", got, want)
	}
	if got, want := equal.All().In(two), two.Set(); got != want {
		t.Errorf("no slot has the same range: got %v, want %v", got, want)
	}
	for _, tc := range []struct {
		reason string
		got    shard.Set
		want   shard.Set
	}{
		{"The newer layout.", one.Set(1).Union(two.Set(2)), two.Set(1, 2)},
		{"The newer layout, first.", two.Set(1).Union(one.Set(2)), two.Set(1, 2)},
		{"That of a set with slots.", two.Set().Union(one.Set(2)), one.Set(2)},
		{"That of a set with slots, first.", one.Set(2).Union(two.Set()), one.Set(2)},
		{"Its own.", one.Set(1, 2).Minus(two.Set(2)), one.Set(1)},
		{"Its own, too.", one.Set(1, 2).Both(two.Set(2)), one.Set(2)},
	} {
		if tc.got != tc.want {
			t.Errorf("%s got %v of version %d", tc.reason, tc.got, tc.got.Layout().Version())
		}
	}
	const ranges = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000') || " +
		"shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')"
	if got, want := two.Set(0, 1, 3).Selector(), ranges; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got, want := two.Set(2).Selector(),
		"shardRange(object.metadata.namespace, '0x0000000000000000', '0x0000000000000001')"; got != want {
		t.Errorf("an empty slot: got %s\nwant %s", got, want)
	}
}

// TestBadStarts: invalid boundaries are refused with an error that says why.
func TestBadStarts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want    string
		slots   int
		version int64
		starts  []uint64
	}{
		{"into 3 slots", 3, 1, []uint64{0, 1, 2}},
		{"version is 0", 2, 0, []uint64{0, 1}},
		{"1 starts of 2 slots", 2, 1, []uint64{0}},
		{"slot 0 does not begin at hash 0", 2, 1, []uint64{1, 2}},
		{"slot 2 begins before slot 1", 4, 1, []uint64{0, 5, 4, 6}},
	} {
		_, err := shard.Layout{Slots: tc.slots}.WithStarts(tc.version, tc.starts)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	l := shard.Layout{Slots: 8}
	a, b := l.Set(0, 1, 2, 5), l.Set(2, 3, 7)
	for _, tc := range []struct {
		reason string
		got    shard.Set
		want   []int
	}{
		{"Either.", a.Union(b), []int{0, 1, 2, 3, 5, 7}},
		{"Only the first.", a.Minus(b), []int{0, 1, 5}},
		{"Both.", a.Both(b), []int{2}},
		{"None.", l.Set(), nil},
		{"Every one.", l.All(), []int{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		if got := slices.Collect(tc.got.Slots()); !slices.Equal(got, tc.want) {
			t.Errorf("%s got %v, want %v", tc.reason, got, tc.want)
		}
		if tc.got.Len() != len(tc.want) || tc.got.IsEmpty() != (len(tc.want) == 0) || tc.got.IsAll() != (len(tc.want) == 8) {
			t.Errorf("%s it has %d slots, empty %t, all %t", tc.reason, tc.got.Len(), tc.got.IsEmpty(), tc.got.IsAll())
		}
	}
	if got := a.String(); got != "0-2,5" {
		t.Errorf("got %q", got)
	}
	if a != l.Set(5, 2, 1, 0) || (shard.Layout{}).All() != (shard.Layout{Slots: shard.DefaultSlots}).All() {
		t.Error("equal sets differ")
	}
	const want = "shardRange(object.metadata.namespace, '0x4000000000000000', '0x8000000000000000') || " +
		"shardRange(object.metadata.namespace, '0xe000000000000000', '0x10000000000000000')"
	if got := b.Selector(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestLayout(t *testing.T) {
	t.Parallel()
	for _, l := range []shard.Layout{{}, {Slots: 1}, {By: shard.UID, Slots: shard.MaxSlots}} {
		if err := l.Check(); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for _, l := range []shard.Layout{{Slots: 3}, {Slots: -64}, {Slots: 2 * shard.MaxSlots}, {By: 7}} {
		if err := l.Check(); err == nil {
			t.Errorf("%+v has nothing wrong", l)
		}
	}
	for _, b := range []shard.By{shard.Namespace, shard.UID} {
		if got, err := shard.ParseBy(b.String()); err != nil || got != b {
			t.Errorf("%v became %v, %v", b, got, err)
		}
	}
	if _, err := shard.ParseBy("name"); err == nil {
		t.Error("an object is sharded by its name")
	}
}

func BenchmarkHas(b *testing.B) {
	s := shard.Layout{By: shard.UID}.Set(1, 2, 3)
	uid := []byte("7a1c9c5e-0d52-4c86-9d7f-3f6f0a5f2b41")
	b.ReportAllocs()
	for b.Loop() {
		s.HasBytes(nil, uid)
	}
}

func BenchmarkHasWithStarts(b *testing.B) {
	l := shard.Layout{By: shard.UID}
	l, err := l.WithStarts(1, l.Starts())
	if err != nil {
		b.Fatal(err)
	}
	s, uid := l.Set(1, 2, 3), []byte("7a1c9c5e-0d52-4c86-9d7f-3f6f0a5f2b41")
	b.ReportAllocs()
	for b.Loop() {
		s.HasBytes(nil, uid)
	}
}
