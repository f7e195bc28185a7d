package protobuf

import (
	"fmt"
	"hash/maphash"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// TestQuantitiesOfOneHash: the request and the limit of a pod are both remembered, even if their hashes collide.
func TestQuantitiesOfOneHash(t *testing.T) {
	var k quantities
	first := encoded(t, "100m")
	if !k.has(first) {
		t.Fatal("100m is not a quantity")
	}
	place := func(data []byte) uint64 { return maphash.Bytes(k.seed, data) % uint64(len(k.pairs)) }
	var other []byte
	for i := 101; other == nil; i++ {
		if data := encoded(t, fmt.Sprintf("%dm", i)); place(data) == place(first) {
			other = data
		}
	}
	k.has(other)
	if n := testing.AllocsPerRun(100, func() { k.has(first); k.has(other) }); n > 0 {
		t.Errorf("%.0f allocations: one evicts the other", n)
	}
}

func encoded(t *testing.T, text string) []byte {
	t.Helper()
	q := resource.MustParse(text)
	data, err := q.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}
