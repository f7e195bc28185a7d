package store

import "github.com/fairlead-io/fairlead/internal/source"

// labelSet is the labels of an object, sorted by key. It implements labels.Labels.
type labelSet []Label

func (s *labelSet) Lookup(key string) (string, bool) {
	for i := range *s {
		if (*s)[i].Key == key {
			return (*s)[i].Value, true
		}
	}
	return "", false
}

func (s *labelSet) Has(key string) bool { _, ok := s.Lookup(key); return ok }

func (s *labelSet) Get(key string) string { v, _ := s.Lookup(key); return v }

// shape is the namespace, labels and owners of siblings, such as the pods of one ReplicaSet. Namespace, label and owner
// indexes are sets of shapes. Shapes are interned: equal shapes have one pointer.
type shape struct {
	ns     string
	labels labelSet
	owners []Owner
	hash   uint64
	// siblings is a hash of the stable parts. Objects with the same hash resemble each other; see package pack.
	siblings uint64
}

// shapeKeys compares shapes by pointer, since they are interned.
type shapeKeys struct{}

func (shapeKeys) Hash(s *shape) uint64 { return s.hash }

func (shapeKeys) Same(a, b *shape) bool { return a == b }

// indexValues returns the values of the objects of the shape in a built-in index.
func (s *shape) indexValues(name string) (values []string) {
	switch name {
	case IndexNamespace:
		values = append(values, s.ns)
	case IndexLabel:
		for _, l := range s.labels {
			values = append(values, l.Key+"="+l.Value)
		}
	case IndexOwner:
		for i := range s.owners {
			values = append(values, string(s.owners[i].UID))
		}
	}
	return values
}

func (s *shape) matches(h *source.Header) bool {
	if len(s.labels) != len(h.Labels) || len(s.owners) != len(h.Owners) || s.ns != string(h.Namespace) {
		return false
	}
	for i := range h.Labels {
		l := &h.Labels[i]
		// Servers sort labels; the search is for those that do not.
		if s.labels[i].Key == string(l.Key) {
			if s.labels[i].Value != string(l.Value) {
				return false
			}
			continue
		}
		if v, ok := s.labels.Lookup(string(l.Key)); !ok || v != string(l.Value) {
			return false
		}
	}
	for i := range h.Owners {
		a, b := &s.owners[i], &h.Owners[i]
		if a.Controller != b.Controller || string(a.UID) != string(b.UID) || a.Name != string(b.Name) ||
			a.Kind != string(b.Kind) || a.APIVersion != string(b.APIVersion) {
			return false
		}
	}
	return true
}

// Names of the indexes that every store has.
const (
	IndexNamespace = "namespace" // value: the namespace
	IndexLabel     = "label"     // value: "key=value", or "key" for any value
	IndexOwner     = "owner"     // value: the uid of an owner
)
