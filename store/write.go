package store

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/tree"
	"github.com/fairlead-io/fairlead/source"
)

// Created says, before Done, that the server has created the object with this request, as it may with an apply.
func (w *Write) Created() { w.ctx.Create = true }

// Done ends the write with the answer to a create, update, patch or apply: it is laid over the store, and recorded, so that
// its event is known as an echo. An answer that cannot be read ends the write like Fail.
func (w *Write) Done(enc source.Encoding, answer []byte) (result PutResult, err error) {
	w.end.Do(func() {
		defer w.land()
		var rec *Record
		if rec, err = w.s.parse(enc, answer); err != nil {
			return
		}
		var record func()
		if w.ctx.Owner != "" && !rec.ver.isZero() && pure(&w.ctx, rec) {
			record = func() { w.s.ledger.record(w, rec) }
		}
		result = w.s.put(rec, putting{w: w, record: record})
	})
	return result, err
}

// Deleted ends the write with the answer to a delete after which the incarnation is gone; see ParseDeletion.
func (w *Write) Deleted(uid types.UID) (result PutResult) {
	w.end.Do(func() {
		defer w.land()
		if w.lost() {
			result = NeedsBarrier
			return
		}
		result = w.s.PutDeleted(w.key, uid)
	})
	return result
}

// lost says whether the history of the server went back since the write began. If it does a moment later, all entries are dropped.
func (w *Write) lost() bool {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopeOf(w.key.Namespace)
	return sc != nil && s.overlay.dropped[sc.ns] > w.begun
}

// Fail ends a write that was refused, or whose answer is not known: what was held because of it is given.
func (w *Write) Fail() { w.end.Do(w.land) }

// ParseDeletion reads the answer to a delete, a Status or the object as JSON, and says whether the object is gone, and which
// incarnation it was. One that still has finalizers or a grace period is not gone: it is an answer for Done.
func ParseDeletion(answer []byte) (gone bool, uid types.UID, err error) {
	var a struct {
		Kind     string
		Details  struct{ UID types.UID }
		Metadata struct {
			UID                        types.UID
			Finalizers                 []string
			DeletionGracePeriodSeconds *int64
		}
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return false, "", fmt.Errorf("cannot read the answer to a delete: %w", err)
	}
	if a.Metadata.UID == "" {
		return a.Kind == "Status", a.Details.UID, nil
	}
	grace := a.Metadata.DeletionGracePeriodSeconds
	return len(a.Metadata.Finalizers) == 0 && (grace == nil || *grace == 0), a.Metadata.UID, nil
}

// pure says whether the answer differs from the base only in what was written, so that a change from the base to the answer
// contains nothing foreign.
func pure(w *WriteContext, answer *Record) bool {
	base := w.Base
	switch {
	case w.Create:
		return true
	case base == nil || !base.SameUID(answer) || base.ver.equal(answer.ver):
		return false
	case w.Locked:
		return true
	case base.del != answer.del || base.fin != answer.fin && w.Subresource != "":
		return false
	case w.Subresource != "" && (base.gen != answer.gen || base.shape != answer.shape):
		return false
	case len(w.Sent) == 0:
		return false
	}
	load := parse
	if base.enc != source.JSON || answer.enc != source.JSON {
		load = parseTyped // two encodings have the Go type in common; a field that it lacks is one that no reader of the store sees
	}
	before, err := load(base)
	if err != nil {
		return false
	}
	after, err := load(answer)
	if err != nil {
		return false
	}
	sent, err := base.st.decoders.untyped.Unmarshal(w.Sent)
	if err != nil {
		return false
	}
	for _, o := range []map[string]any{before, after} {
		if meta, ok := o["metadata"].(map[string]any); ok {
			for _, own := range []string{"resourceVersion", "generation", "managedFields"} {
				delete(meta, own)
			}
		}
		delete(o, "kind")
		delete(o, "apiVersion")
	}
	return tree.Accounts(before, after, sent)
}

// parse reads a record that came as JSON.
func parse(r *Record) (map[string]any, error) {
	raw, err := r.load()
	if err != nil {
		return nil, err
	}
	return r.st.decoders.untyped.Unmarshal(raw)
}

// parseTyped reads a record as its Go type is encoded.
func parseTyped(r *Record) (map[string]any, error) {
	raw, err := r.load()
	if err != nil {
		return nil, err
	}
	o, err := r.st.decodeByScheme(r, raw)
	if err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(o); err != nil {
		return nil, err
	}
	return r.st.decoders.untyped.Unmarshal(raw)
}
