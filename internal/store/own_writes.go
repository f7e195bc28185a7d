package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
)

// ownWrites makes the answers to the program's own writes visible to reads before the watch delivers them (C1, C2), and
// records the writes so that their echoes are recognized (C3). It owns the overlay and the ledger. The writer lock
// guards the overlay; the ledger has a lock of its own.
type ownWrites struct {
	pub       *publisher
	codec     *codec
	selector  *currentSelector
	coverages coverages
	server    server
	readers   echoReaders
	opt       *Options

	overlay overlay
	ledger  ledger
}

// server is what own writes need of the sources of a store.
type server interface {
	// surveyor returns the surveyor of a scope, or nil if no source fills it. The caller holds the writer lock.
	surveyor(scope string) *source.Surveyor
	// reach waits until a scope has reached a version. It sends no request.
	reach(ctx context.Context, scope string, ver version) error
}

// echoReaders are the cursors that hold back changes while a write of their owner is in flight.
type echoReaders interface {
	// judged returns, by owner, the position in the log up to which all its cursors have told echoes from other
	// changes.
	// The caller holds the writer lock.
	judged() map[string]uint64
	// answered wakes the cursors of an owner whose write has ended.
	answered(owner string)
}

// PutResult is the result of laying the answer to a write over the store.
type PutResult uint8

// The results of Put.
const (
	// Overlaid means that reads see the answer from now on.
	Overlaid PutResult = iota + 1
	// AlreadyKnown means that the store has this version or a newer one.
	AlreadyKnown
	// OutOfScope means that the store does not hold such objects, because of namespace, selector or slot. Reads of the
	// object are not affected or return ErrNotFound.
	OutOfScope
	// NeedsBarrier means that the answer is not laid over the store; see Store.Settle. The store cannot decide whether
	// its watch selects the object, or the answer lacks fields that readers need (see Options.Unstructured), or the
	// server's history was rolled back during the write.
	NeedsBarrier
	// Unversioned means that the answer has no resource version.
	Unversioned
)

// String returns the name of the result.
func (r PutResult) String() string {
	return [...]string{"", "Overlaid", "AlreadyKnown", "OutOfScope", "NeedsBarrier", "Unversioned"}[min(r, Unversioned)]
}

// putting holds the parameters of put.
type putting struct {
	w      *Write     // the answered write, if it was announced
	record func()     // called under the lock before any early return; may be nil
	sure   bool       // the watch is known to select the object
	fields fields.Set // of the object, for field selectors
}

// Put lays the answer to a successful create, update, patch or apply over the store.
func (o *ownWrites) Put(enc source.Encoding, raw []byte) (PutResult, error) {
	rec, has, err := o.selector.parseAnswer(enc, raw)
	if err != nil {
		return 0, err
	}
	return o.put(rec, putting{fields: has}), nil
}

func (o *ownWrites) put(rec *Record, how putting) PutResult {
	if o.opt.Unstructured && rec.Encoding() == source.Protobuf && !how.sure && !o.codec.typeHasAll(rec) {
		return NeedsBarrier
	}
	for st := stage(rec, o.pub.indexDefs()); ; st = stage(rec, o.pub.indexDefs()) {
		if result, ok := o.tryPut(st, how); ok {
			return result
		}
	}
}

// tryPut publishes a staged answer. ok is false if the indexes have changed since.
func (o *ownWrites) tryPut(st staged, how putting) (_ PutResult, ok bool) {
	rec := st.rec
	o.pub.lock()
	defer o.pub.unlock()
	if !o.pub.hasIndexes(st.defs) {
		return 0, false
	}
	cov := o.coverages.of(rec.Namespace())
	lost := how.w != nil && cov != nil && o.overlay.wasDropped(cov.ns, how.w.begun)
	if how.record != nil && !lost && (cov == nil || !cov.elsewhere(rec)) {
		how.record()
	}
	switch {
	case rec.ver.isZero():
		return Unversioned, true
	case cov == nil:
		return OutOfScope, true
	case lost:
		return NeedsBarrier, true
	}
	cur := o.pub.current()
	prior, known := cur.base.objects.Find(rec)
	if cov.applied(rec.ver, prior) || cov.share.knew(rec) || o.overlay.knows(rec) {
		return AlreadyKnown, true
	}
	in, decided := o.selector.selects(rec, how.fields)
	if how.sure {
		in, decided = true, true
	}
	if cov.elsewhere(rec) {
		in, decided = false, true
	}
	switch {
	case !decided:
		return NeedsBarrier, true
	case !in && !known && !o.overlay.isAnswered(rec.Key()):
		return OutOfScope, true
	}
	o.pub.publish(o.overlay.answer(cur, st, in), nil)
	if !in {
		return OutOfScope, true
	}
	return Overlaid, true
}

// PutDeleted hides an incarnation of an object from reads after the server has answered its delete. An empty uid means
// the incarnation that reads see now. PutDeleted also remembers a uid that the store does not know, because the watch
// may be behind and deliver its creation later.
func (o *ownWrites) PutDeleted(k Key, uid types.UID) PutResult {
	o.pub.lock()
	defer o.pub.unlock()
	cov := o.coverages.of(k.Namespace)
	if cov == nil || cov.share.lacks(k.Namespace) {
		return OutOfScope
	}
	next, ok := o.overlay.deleted(o.pub.current(), cov, k, uid)
	if !ok {
		return AlreadyKnown
	}
	o.pub.publish(next, nil)
	return Overlaid
}

// putAbsent makes reads return not found for an object that the server did not have at version ver.
func (o *ownWrites) putAbsent(k Key, ver version) {
	o.pub.lock()
	defer o.pub.unlock()
	cov := o.coverages.of(k.Namespace)
	if cov == nil {
		return
	}
	if next, ok := o.overlay.absent(o.pub.current(), cov, k, ver); ok {
		o.pub.publish(next, nil)
	}
}

// Settle makes reads of one object at least as new as a version that the server has answered. It is for answers that
// cannot be laid over the store: see NeedsBarrier, and subresources whose answer is not the object. It waits a tenth of
// a second for the watch. Then it asks the server for the object, as the watch selects it, and lays the result over the
// store. Without a version it asks at once.
//
// If that fails, too, Settle returns the reason. Overdue is then true for the object until the watch has reached the
// version or, without a version, for Options.OverlayBound.
func (o *ownWrites) Settle(ctx context.Context, k Key, version string) error {
	o.pub.lock()
	cov := o.coverages.of(k.Namespace)
	if cov == nil || cov.share.lacks(k.Namespace) {
		o.pub.unlock()
		return nil
	}
	by, want, began := o.server.surveyor(cov.ns), parseVersion(version), o.overlay.tick()
	o.pub.unlock()
	if !want.isZero() {
		short, cancel := context.WithTimeout(ctx, waitPatience)
		defer cancel()
		if o.server.reach(short, cov.ns, want) == nil {
			return nil
		}
	}
	err := errors.New("the store has no source")
	if by != nil {
		err = o.ask(ctx, by, k)
	}
	if err == nil {
		o.trust(k, began)
		return nil
	}
	o.distrust(cov, k, want)
	return fmt.Errorf("cannot bring %s up to date in the cache of %s: %w", k, o.opt.resource(), err)
}

// ask gets one object from the server and lays it over the store.
func (o *ownWrites) ask(ctx context.Context, by *source.Surveyor, k Key) error {
	var found *Record
	version, err := by.Get(ctx, k.Namespace, k.Name, func(obj *source.Object) (err error) {
		found, err = o.codec.parse(obj.Encoding, bytes.Clone(obj.Raw))
		return err
	})
	switch {
	case err != nil:
		return err
	case found != nil:
		o.put(found, putting{sure: true})
	default:
		o.putAbsent(k, parseVersion(version))
	}
	return nil
}

// Doubt makes Overdue true for an object, because a write to it may or may not have succeeded. That lasts until Settle
// has asked the server, or for Options.OverlayBound. Doubt does not block. It has no effect on an object without a name
// or in a namespace that is not watched.
func (o *ownWrites) Doubt(k Key) {
	o.pub.lock()
	cov := o.coverages.of(k.Namespace)
	o.pub.unlock()
	if cov != nil && k.Name != "" {
		o.distrust(cov, k, version{})
	}
}

// distrust makes Overdue true for an object until the scope has reached a version. Without a version that lasts for
// Options.OverlayBound.
func (o *ownWrites) distrust(cov *coverage, k Key, ver version) {
	o.pub.lock()
	defer o.pub.unlock()
	if cov.dropped || cov.share.lacks(k.Namespace) {
		return
	}
	o.overlay.distrust(k, ver)
	cur := o.pub.current()
	o.pub.publish(root{base: cur.base, merged: cur.merged.copy()}, nil) // Overdue checks keys while both states differ
}

// trust ends a doubt that is not newer than began, the clock when the query of the server began.
func (o *ownWrites) trust(k Key, began uint64) {
	o.pub.lock()
	defer o.pub.unlock()
	if o.overlay.trust(k, began) {
		o.pub.publishBase()
	}
}

// OverlayStats returns the number and age of the own writes that the watch has not brought yet.
func (o *ownWrites) OverlayStats() OverlayStats {
	o.pub.lock()
	defer o.pub.unlock()
	return o.overlay.stats()
}

// Overdue reports whether readers of k should ask the server: the watch has not brought an own write within
// Options.OverlayBound, or the answer could not be laid over the store. It costs one atomic load while there are no own
// writes.
func (o *ownWrites) Overdue(k Key) bool {
	if r := o.pub.current(); r.base == r.merged {
		return false
	}
	o.pub.lock()
	d, yes := o.overlay.overdue(k)
	o.pub.unlock()
	if d.first {
		o.codec.logger.Warn("an own write is not confirmed by the watch", "key", k, "version", d.ver.String(),
			"age", time.Since(d.since))
	}
	return yes
}

// BeginWrite announces a write. Call it before the request is sent. For a create with a generated name, pass an empty
// name: no changes are held, but the answer is recorded.
func (o *ownWrites) BeginWrite(k Key, ctx WriteContext) *Write {
	o.pub.lock()
	w := &Write{own: o, key: k, ctx: ctx, begun: o.overlay.tick()}
	o.pub.unlock()
	if ctx.Owner == "" {
		return w
	}
	if o.ledger.begin(k, &w.ctx) {
		o.sweep()
	}
	return w
}

// sweep forgets the writes whose echo every cursor of their owner has judged.
func (o *ownWrites) sweep() {
	o.pub.lock()
	defer o.pub.unlock()
	base := o.pub.current().base
	o.ledger.sweep(o.readers.judged(), o.pub.end().seq+1, func(k Key, own *ownWrite) (yes, watched bool) {
		cov := o.coverages.of(k.Namespace)
		if cov == nil || cov.share.lacks(k.Namespace) {
			return false, false
		}
		have, _ := base.get(o.codec.intern.hashOf(k), k)
		if own.deleted != "" {
			return have == nil || have.UID() != own.deleted, true
		}
		return cov.applied(own.ver, have), true
	})
}
