package store

import (
	"iter"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/source"
)

// Key names one object of a store; Namespace is empty for a cluster-scoped one.
type Key struct{ Namespace, Name string }

// String returns "namespace/name", or "name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Label is one label of an object.
type Label struct{ Key, Value string }

// Owner is one owner reference of an object.
type Owner struct {
	UID                    types.UID
	APIVersion, Kind, Name string
	Controller             bool
}

// Record is one stored version of one object: a fixed header, and the encoded object, which is decoded when a view asks
// for it and shared by all readers of the record. A record never changes. It is safe for concurrent use and stays valid
// for as long as somebody holds it.
type Record struct {
	st    *Store
	id    *ident
	shape *shape
	ver   version
	gen   int64
	del   int64         // Unix seconds of the deletion timestamp; 0: not being deleted
	sum   atomic.Uint64 // see contentSum; 0: not known yet
	body  pack.Item     // the encoded object
	forms atomic.Pointer[form]
	fin   uint16
	enc   source.Encoding
}

// recordKeys has records found by their key.
type recordKeys struct{}

func (recordKeys) Hash(r *Record) uint64  { return r.id.hash }
func (recordKeys) Same(a, b *Record) bool { return a.id.sameKey(b.id) }

// Key returns the key of the object.
func (r *Record) Key() Key { return r.id.key() }

// Namespace returns the namespace of the object, empty for a cluster-scoped one.
func (r *Record) Namespace() string { return r.id.ns }

// Name returns the name of the object.
func (r *Record) Name() string { return r.id.name() }

// UID returns the uid of the object.
func (r *Record) UID() types.UID { return types.UID(r.id.uid()) }

// SameUID says whether both records are of the same incarnation of an object.
func (r *Record) SameUID(o *Record) bool { return r.id.sameUID(o.id) }

// Version returns the resource version.
func (r *Record) Version() string { return r.ver.String() }

// Generation returns metadata.generation.
func (r *Record) Generation() int64 { return r.gen }

// Deleting says whether the object has a deletion timestamp.
func (r *Record) Deleting() bool { return r.del != 0 }

// DeletionTime returns the deletion timestamp; the zero time if there is none.
func (r *Record) DeletionTime() time.Time {
	if r.del == 0 {
		return time.Time{}
	}
	return time.Unix(r.del, 0)
}

// Finalizers returns the number of finalizers.
func (r *Record) Finalizers() int { return int(r.fin) }

// Labels returns the labels for matching with a labels.Selector. It is shared and read-only.
func (r *Record) Labels() labels.Labels { return &r.shape.labels }

// Label returns the value of one label.
func (r *Record) Label(key string) (string, bool) { return r.shape.labels.Lookup(key) }

// AllLabels yields the labels in the order of their keys.
func (r *Record) AllLabels() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, l := range r.shape.labels {
			if !yield(l.Key, l.Value) {
				return
			}
		}
	}
}

// Owners returns the owner references. The slice is shared and read-only.
func (r *Record) Owners() []Owner { return r.shape.owners }

// Controller returns the owner reference that is marked as the controller.
func (r *Record) Controller() (Owner, bool) {
	for _, o := range r.shape.owners {
		if o.Controller {
			return o, true
		}
	}
	return Owner{}, false
}

// Encoding says how the bytes of Raw are encoded.
func (r *Record) Encoding() source.Encoding { return r.enc }
