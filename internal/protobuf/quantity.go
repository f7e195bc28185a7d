package protobuf

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/resource"
)

// quantities remembers some that were parsed: the requests and limits of a cluster are few different ones.
type quantities struct {
	once sync.Once
	*quantityTable
}

type quantityTable struct {
	seed  maphash.Seed
	slots [512]atomic.Pointer[quantity]
}

type quantity struct {
	text  string // of the message
	value resource.Quantity
}

// maxQuantityText: longer ones are not remembered.
const maxQuantityText = 32

// has says whether data is a quantity that was parsed a moment ago, or one that can be.
func (k *quantities) has(data []byte) bool {
	if len(data) > 0 && len(data) <= maxQuantityText {
		k.once.Do(k.init)
		if known := k.slot(data).Load(); known != nil && known.text == string(data) {
			return true
		}
	}
	return k.decode(data, new(resource.Quantity)) == nil
}

func (k *quantities) init() { k.quantityTable = &quantityTable{seed: maphash.MakeSeed()} }

func (k *quantities) slot(data []byte) *atomic.Pointer[quantity] {
	return &k.slots[maphash.Bytes(k.seed, data)%uint64(len(k.slots))]
}

// decode is q.Unmarshal(data).
func (k *quantities) decode(data []byte, q *resource.Quantity) error {
	if len(data) == 0 || len(data) > maxQuantityText {
		return q.Unmarshal(data)
	}
	k.once.Do(k.init)
	slot := k.slot(data)
	if known := slot.Load(); known != nil && known.text == string(data) {
		*q = known.value.DeepCopy()
		return nil
	}
	if *q != (resource.Quantity{}) { // what is there may survive
		return q.Unmarshal(data)
	}
	if err := q.Unmarshal(data); err != nil {
		return err
	}
	slot.Store(&quantity{string(data), q.DeepCopy()})
	return nil
}
