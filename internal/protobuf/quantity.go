package protobuf

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/resource"
)

// quantities remembers parsed quantities. The requests and limits of a cluster have few distinct values.
type quantities struct {
	once sync.Once
	*quantityTable
}

// quantityTable has two places for each bucket, so that two quantities of one pod do not evict each other.
type quantityTable struct {
	seed  maphash.Seed
	pairs [256][2]atomic.Pointer[quantity]
}

type quantity struct {
	text  string // encoded message
	value resource.Quantity
}

// maxQuantityText is the maximum length of a remembered quantity in bytes.
const maxQuantityText = 32

// has reports whether data is a remembered quantity or can be parsed.
func (k *quantities) has(data []byte) bool {
	if len(data) > 0 && len(data) <= maxQuantityText {
		k.once.Do(k.init)
		if known, _ := k.find(data); known != nil {
			return true
		}
	}
	return k.decode(data, new(resource.Quantity)) == nil
}

func (k *quantities) init() { k.quantityTable = &quantityTable{seed: maphash.MakeSeed()} }

// find returns the quantity if it is remembered, else the place to store it.
func (k *quantities) find(data []byte) (known *quantity, place *atomic.Pointer[quantity]) {
	hash := maphash.Bytes(k.seed, data)
	pair := &k.pairs[hash%uint64(len(k.pairs))]
	for i := range pair {
		known := pair[i].Load()
		if known == nil {
			return nil, &pair[i]
		}
		if known.text == string(data) {
			return known, nil
		}
	}
	return nil, &pair[hash>>63]
}

// decode is q.Unmarshal(data).
func (k *quantities) decode(data []byte, q *resource.Quantity) error {
	if len(data) == 0 || len(data) > maxQuantityText {
		return q.Unmarshal(data)
	}
	k.once.Do(k.init)
	known, place := k.find(data)
	if known != nil {
		*q = known.value.DeepCopy()
		return nil
	}
	if *q != (resource.Quantity{}) { // existing content may survive
		return q.Unmarshal(data)
	}
	if err := q.Unmarshal(data); err != nil {
		return err
	}
	place.Store(&quantity{string(data), q.DeepCopy()})
	return nil
}
