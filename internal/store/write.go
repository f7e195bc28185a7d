package store

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
)

// Write is one write in flight. The first call of Done, Deleted, Absent or Fail ends it; later calls have no effect.
type Write struct {
	own *ownWrites
	key Key
	ctx WriteContext
	end sync.Once

	begun uint64 // by the clock of the overlay
}

// Created records that the request has created the object, as an apply may. Call it before Done.
func (w *Write) Created() { w.ctx.Create = true }

// Done ends the write with the answer to a create, update, patch or apply. The answer is laid over the store, and
// recorded so that its event is recognized as an echo. An answer that cannot be read ends the write like Fail.
func (w *Write) Done(enc source.Encoding, answer []byte) (result PutResult, err error) {
	w.end.Do(func() {
		defer w.finish()
		rec, has, failed := w.own.selector.parseAnswer(enc, answer)
		if err = failed; err != nil {
			return
		}
		var record func()
		if w.ctx.Owner != "" && !rec.ver.isZero() && pure(&w.ctx, rec, w.own.ledger.beside(w.key, &w.ctx)) {
			record = func() { w.own.ledger.record(&w.ctx, rec) }
		}
		result = w.own.put(rec, putting{w: w, record: record, fields: has})
	})
	return result, err
}

// Deleted ends the write with the answer to a delete that has removed the incarnation; see ParseDeletion. It is
// recorded so that its event is recognized as an echo.
func (w *Write) Deleted(uid types.UID) PutResult { return w.gone(uid, w.ctx.Owner != "" && uid != "") }

// Absent ends the write with the answer that the object does not exist. Who has deleted the incarnation is not known.
func (w *Write) Absent(uid types.UID) PutResult { return w.gone(uid, false) }

func (w *Write) gone(uid types.UID, own bool) (result PutResult) {
	w.end.Do(func() {
		defer w.finish()
		if w.isLost() {
			result = NeedsBarrier
			return
		}
		if own {
			w.own.ledger.recordDeletion(w.key, &w.ctx, uid)
		}
		result = w.own.PutDeleted(w.key, uid)
	})
	return result
}

// isLost reports whether the server's history was rolled back since the write began. A later rollback drops all entries
// anyway.
func (w *Write) isLost() bool {
	o := w.own
	o.pub.lock()
	defer o.pub.unlock()
	cov := o.coverages.of(w.key.Namespace)
	return cov != nil && o.overlay.wasDropped(cov.ns, w.begun)
}

// Fail ends a write that was refused, or whose answer is not known (see also Store.Doubt). Changes held because of it
// are given.
func (w *Write) Fail() { w.end.Do(w.finish) }

// finish ends w and wakes the cursors that hold changes because of it.
func (w *Write) finish() {
	if w.ctx.Owner == "" {
		return
	}
	w.own.ledger.end(w.key, &w.ctx)
	w.own.readers.answered(w.ctx.Owner)
}
