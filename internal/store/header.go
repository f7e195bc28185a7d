package store

import (
	"iter"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// header holds the facts of an object that indexes, subscribers and the overlay compare. It is never changed after the
// record is published. Versions of one object share the identity, and similar objects share the shape.
type header struct {
	id    *ident
	shape *shape
	ver   version
	gen   int64
	del   int64 // Unix seconds of the deletion timestamp; 0: not being deleted
}

// adopt makes a new version of an object, which no reader sees yet, share the identity of the one before.
func (h *header) adopt(prior *Record) {
	if prior != nil && h.id != prior.id && h.SameUID(prior) {
		h.id = prior.id
	}
}

// Key returns the key of the object.
func (h *header) Key() Key { return h.id.key() }

// Namespace returns the namespace of the object, empty for a cluster-scoped one.
func (h *header) Namespace() string { return h.id.ns }

// Name returns the name of the object.
func (h *header) Name() string { return h.id.name() }

// UID returns the uid of the object.
func (h *header) UID() types.UID { return types.UID(h.id.uid()) }

// SameUID reports whether both records are of the same incarnation of an object.
func (h *header) SameUID(o *Record) bool { return h.id.sameUID(o.id) }

// Version returns the resource version.
func (h *header) Version() string { return h.ver.String() }

// Generation returns metadata.generation.
func (h *header) Generation() int64 { return h.gen }

// Deleting reports whether the object has a deletion timestamp.
func (h *header) Deleting() bool { return h.del != 0 }

// Labels returns the labels for matching with a labels.Selector. It is shared and read-only.
func (h *header) Labels() labels.Labels { return &h.shape.labels }

// Label returns the value of one label.
func (h *header) Label(key string) (string, bool) { return h.shape.labels.Lookup(key) }

// AllLabels yields the labels in the order of their keys.
func (h *header) AllLabels() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, l := range h.shape.labels {
			if !yield(l.Key, l.Value) {
				return
			}
		}
	}
}

// Owners returns the owner references. The slice is shared and read-only.
func (h *header) Owners() []Owner { return h.shape.owners }

// Controller returns the owner reference that is marked as the controller.
func (h *header) Controller() (Owner, bool) {
	for _, o := range h.shape.owners {
		if o.Controller {
			return o, true
		}
	}
	return Owner{}, false
}
