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
		l := shard.Layout{
			By:    shard.By(rapid.IntRange(0, 1).Draw(t, "by")),
			Slots: 1 << rapid.IntRange(0, 10).Draw(t, "bits"),
		}
		s := l.Set(rapid.SliceOfDistinct(rapid.IntRange(0, l.Slots-1), rapid.ID[int]).Draw(t, "slots")...)
		o := &metav1.PartialObjectMetadata{}
		o.Namespace = rapid.StringMatching(`[a-z0-9-]{0,20}`).Draw(t, "namespace")
		o.UID = types.UID(rapid.StringMatching(`[a-f0-9-]{0,36}`).Draw(t, "uid"))
		has := s.Has(o.Namespace, o.UID)
		if got := s.HasBytes([]byte(o.Namespace), []byte(o.UID)); got != has {
			t.Fatalf("as bytes %t, as strings %t", got, has)
		}
		if !s.IsEmpty() {
			if got := selects(t, s, o); got != has {
				t.Fatalf("the server selects it: %t, we: %t", got, has)
			}
		}
		if got := s.Holds(l.SlotOf(o.Namespace, o.UID)); got != has {
			t.Fatalf("its slot is in the set: %t, it is: %t", got, has)
		}
	})
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
