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

// decode is q.Unmarshal(data).
func (k *quantities) decode(data []byte, q *resource.Quantity) error {
	if len(data) == 0 || len(data) > maxQuantityText {
		return q.Unmarshal(data)
	}
	k.once.Do(func() { k.quantityTable = &quantityTable{seed: maphash.MakeSeed()} })
	slot := &k.slots[maphash.Bytes(k.seed, data)%uint64(len(k.slots))]
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
