package store

import (
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/shard"
)

var _ source.Sharded = (*scope)(nil)

// Hold implements source.Sharded. It collects the leaving objects without the lock, since no other goroutine fills the
// scope.
func (sc *scope) Hold(set shard.Set) {
	in := sc.in
	var leaving []*Record
	for r := range in.pub.current().base.inScope(sc.ns) {
		if !r.id.in(&set) {
			leaving = append(leaving, r)
		}
	}
	in.pub.lock()
	wake := sc.holdLocked(set, leaving)
	in.pub.unlock()
	wake()
}

func (sc *scope) holdLocked(set shard.Set, leaving []*Record) (wake func()) {
	if sc.dropped {
		return func() {}
	}
	in := sc.in
	sc.coverage.hold(set)
	cur := in.pub.current()
	next, e := root{base: cur.base}, &trie.Edit{}
	if len(leaving) > 0 {
		next.base = cur.base.copy()
	}
	gone := make(map[Key]bool, len(leaving))
	batch := make([]change, 0, len(leaving)+1)
	for _, r := range leaving {
		if _, ok := next.base.delete(e, r); ok {
			gone[r.Key()] = true
			batch = append(batch, change{typ: Left, relist: true, obj: r, prior: r})
		}
	}
	in.overlay.release(sc.ns, &set, gone)
	in.ledger.release(func(k Key) bool {
		if gone[k] || sc.share.lacks(k.Namespace) {
			return true
		}
		_, ok := next.base.get(in.codec.intern.hashOf(k), k)
		return !ok && set.Layout().By == shard.UID // the key may be of an object that has left
	})
	next.merged = in.overlay.rebuild(next.base)
	batch = append(batch, in.checkSynced()...)
	wake = in.pub.publish(next, batch)
	for i := range batch {
		in.codec.superseded(batch[i].prior)
	}
	sc.surveys.relisted()
	return wake
}

// Gain implements source.Sharded.
func (sc *scope) Gain(slots shard.Set) source.Replacement {
	r := sc.Replace().(*replacement)
	r.gained, r.known = &slots, 0
	return r
}
