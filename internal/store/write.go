package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// Write is one write in flight. The first call of Done, Deleted or Fail ends it; later calls have no effect.
type Write struct {
	s   *Store
	key Key
	ctx WriteContext
	end sync.Once

	begun uint64 // by the clock of the overlay
}

// BeginWrite announces a write. Call it before the request is sent. For a create with a generated name, pass an empty
// name: no changes are held, but the answer is recorded.
func (s *Store) BeginWrite(k Key, ctx WriteContext) *Write {
	s.mu.Lock()
	w := &Write{s: s, key: k, ctx: ctx, begun: s.overlay.tick()}
	s.mu.Unlock()
	if ctx.Owner == "" {
		return w
	}
	if s.ledger.begin(k, &w.ctx) {
		s.sweepLedger()
	}
	return w
}

// Created records that the request has created the object, as an apply may. Call it before Done.
func (w *Write) Created() { w.ctx.Create = true }

// Done ends the write with the answer to a create, update, patch or apply. The answer is laid over the store, and
// recorded so that its event is recognized as an echo. An answer that cannot be read ends the write like Fail.
func (w *Write) Done(enc source.Encoding, answer []byte) (result PutResult, err error) {
	w.end.Do(func() {
		defer w.land()
		rec, has, failed := w.s.answered(enc, answer)
		if err = failed; err != nil {
			return
		}
		var record func()
		if w.ctx.Owner != "" && !rec.ver.isZero() && pure(&w.ctx, rec, w.s.ledger.beside(w.key, &w.ctx)) {
			record = func() { w.s.ledger.record(&w.ctx, rec) }
		}
		result = w.s.put(rec, putting{w: w, record: record, fields: has})
	})
	return result, err
}

// Deleted ends the write with the answer to a delete that has removed the incarnation; see ParseDeletion.
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

// lost reports whether the server's history was rolled back since the write began. A later rollback drops all entries
// anyway.
func (w *Write) lost() bool {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopes.of(w.key.Namespace)
	return sc != nil && s.overlay.dropped[sc.ns] > w.begun
}

// Fail ends a write that was refused, or whose answer is not known (see also Store.Doubt). Changes held because of it
// are given.
func (w *Write) Fail() { w.end.Do(w.land) }

// land ends w and wakes the cursors that hold changes because of it.
func (w *Write) land() {
	s := w.s
	if w.ctx.Owner == "" {
		return
	}
	s.ledger.end(w.key, &w.ctx)
	s.mu.Lock()
	cursors := s.cursors
	s.mu.Unlock()
	for _, c := range cursors {
		if c.opt.HoldWrites == w.ctx.Owner {
			c.wake()
		}
	}
}

// sweepLedger forgets the writes whose echo every cursor of their owner has judged.
func (s *Store) sweepLedger() {
	s.mu.Lock()
	defer s.mu.Unlock()
	judged := map[string]uint64{} // by owner, the lowest of its cursors
	for _, c := range s.cursors {
		if c.hold != nil {
			if at, ok := judged[c.opt.HoldWrites]; !ok || c.settled.Load() < at {
				judged[c.opt.HoldWrites] = c.settled.Load()
			}
		}
	}
	base := s.root.Load().base
	s.ledger.sweep(judged, s.changes.seq+1, func(k Key, ver version) (yes, watched bool) {
		sc := s.scopes.of(k.Namespace)
		if sc == nil || sc.share.lacks(k.Namespace) {
			return false, false
		}
		have, _ := base.get(s.intern.hashKey(k.Namespace, k.Name), k)
		return sc.applied(ver, have), true
	})
}

// ParseDeletion parses the answer to a delete: a Status or the object, as JSON or protobuf. It reports whether the
// object is gone, and which incarnation it was. An object that still has finalizers or a grace period is not gone; its
// answer is one for Done.
func ParseDeletion(answer []byte) (gone bool, uid types.UID, err error) {
	if rest, ok := bytes.CutPrefix(answer, protobufMagic); ok {
		return parseDeletion(rest)
	}
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

// protobufMagic is the prefix of every answer in protobuf.
var protobufMagic = []byte("k8s\x00")

// parseDeletion is ParseDeletion for the envelope of protobuf.
func parseDeletion(answer []byte) (gone bool, uid types.UID, err error) {
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(answer); err != nil {
		return false, "", fmt.Errorf("cannot read the answer to a delete: %w", err)
	}
	if envelope.Kind == "Status" && envelope.APIVersion == "v1" {
		var s metav1.Status
		if err := s.Unmarshal(envelope.Raw); err != nil {
			return false, "", fmt.Errorf("cannot read the answer to a delete: %w", err)
		}
		if s.Details != nil {
			uid = s.Details.UID
		}
		return true, uid, nil
	}
	var o metav1.PartialObjectMetadata // metadata is the first field of every kind
	if err := o.Unmarshal(envelope.Raw); err != nil {
		return false, "", fmt.Errorf("cannot read the answer to a delete: %w", err)
	}
	grace := o.DeletionGracePeriodSeconds
	return o.UID != "" && len(o.Finalizers) == 0 && (grace == nil || *grace == 0), o.UID, nil
}

// pure reports whether the answer differs from the base only in fields that this write or those beside it have written.
// Then the change from the base to the answer contains no foreign change.
func pure(w *WriteContext, answer *Record, beside [][]byte) bool {
	base := w.Base
	switch {
	case w.Create:
		return true
	case base == nil || !base.SameUID(answer) || base.ver.equal(answer.ver):
		return false
	case w.Locked:
		return true
	case base.del != answer.del || base.Finalizers() != answer.Finalizers() && w.Subresource != "":
		return false
	case w.Subresource != "" && (base.gen != answer.gen || base.shape != answer.shape):
		return false
	case len(w.Sent) == 0:
		return false
	case answer.codec.content.Metadata, base.dropped|answer.dropped != 0:
		return false // a foreign change may be in fields that are not held
	}
	load := parse
	if base.Encoding() != source.JSON || answer.Encoding() != source.JSON {
		// two encodings have only the Go type in common; a field that it lacks is one that no reader of the store sees
		load = parseTyped
	}
	before, err := load(base)
	if err != nil {
		return false
	}
	after, err := load(answer)
	if err != nil {
		return false
	}
	var sent []any
	for _, raw := range append([][]byte{w.Sent}, beside...) {
		patch, err := base.codec.decoders.untyped.Unmarshal(raw)
		if err != nil {
			return false
		}
		sent = append(sent, patch)
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
	return tree.AccountsForAll(before, after, sent)
}

// parse reads a record that came as JSON.
func parse(r *Record) (map[string]any, error) {
	raw, err := r.load()
	if err != nil {
		return nil, err
	}
	return r.codec.decoders.untyped.Unmarshal(raw)
}

// parseTyped reads a record in the form in which its Go type is encoded.
func parseTyped(r *Record) (map[string]any, error) {
	raw, err := r.load()
	if err != nil {
		return nil, err
	}
	o, err := r.codec.decodeByScheme(r, raw)
	if err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(o); err != nil {
		return nil, err
	}
	return r.codec.decoders.untyped.Unmarshal(raw)
}
