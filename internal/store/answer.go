package store

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// Answers to writes, read without a store.

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
		patch, err := base.codec.decoder.members(raw)
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
	e, err := r.load()
	if err != nil {
		return nil, err
	}
	return r.codec.decoder.members(e.raw)
}

// parseTyped reads a record in the form in which its Go type is encoded.
func parseTyped(r *Record) (map[string]any, error) {
	e, err := r.load()
	if err != nil {
		return nil, err
	}
	raw, err := r.codec.decoder.toJSON(e)
	if err != nil {
		return nil, err
	}
	return r.codec.decoder.members(raw)
}
