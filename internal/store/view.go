package store

import (
	"errors"
	"fmt"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// View reads a store as objects of one Go type. All views share the encoded objects and the decoded ones. Decoded
// objects are READ-ONLY: copy one with DeepCopy before changing it.
type View[T any] struct {
	s    *Store
	none bool // Of has made s instead of a store
}

// Of returns the view of a store as T, a Kubernetes API type: *T is a metav1.Object. A nil store has no objects.
func Of[T any](s *Store) View[T] {
	none := s == nil
	if none {
		s = New(Options{})
		s.Close()
	}
	return View[T]{s: s, none: none}
}

// Unstructured returns the view of a store as unstructured objects.
func Unstructured(s *Store) View[unstructured.Unstructured] {
	return Of[unstructured.Unstructured](s)
}

// Metadata returns the view of a store as metadata only.
func Metadata(s *Store) View[metav1.PartialObjectMetadata] {
	return Of[metav1.PartialObjectMetadata](s)
}

// Store returns the store.
func (v View[T]) Store() *Store { return v.s }

// Get returns the object of a key, shared and read-only. The error is ErrNotFound or a *DecodeError.
func (v View[T]) Get(k Key) (*T, error) {
	r, ok := v.s.Get(k)
	if !ok {
		return nil, ErrNotFound
	}
	return As[T](r)
}

// All yields every object of one version of the store. It omits objects that cannot be decoded; see List.
func (v View[T]) All() iter.Seq2[Key, *T] { return decoded[T](v.s.Snapshot().All()) }

// Index yields the objects with a value in an index; see Snapshot.Index.
func (v View[T]) Index(name, value string) iter.Seq2[Key, *T] {
	return decoded[T](v.s.Snapshot().Index(name, value))
}

// InNamespace yields the objects of a namespace, all for "".
func (v View[T]) InNamespace(ns string) iter.Seq2[Key, *T] {
	return decoded[T](v.s.Snapshot().InNamespace(ns))
}

// Select yields the objects whose labels match.
func (v View[T]) Select(sel labels.Selector) iter.Seq2[Key, *T] {
	return decoded[T](v.s.Snapshot().Select(sel))
}

// List returns the objects of a sequence of a Snapshot. It omits objects that cannot be decoded; the error joins one
// *DecodeError for each.
func (v View[T]) List(records iter.Seq[*Record]) ([]*T, error) {
	var out []*T
	var errs []error
	for r := range records {
		o, err := As[T](r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, o)
	}
	return out, errors.Join(errs...)
}

func decoded[T any](records iter.Seq[*Record]) iter.Seq2[Key, *T] {
	return func(yield func(Key, *T) bool) {
		for r := range records {
			if o, err := As[T](r); err == nil && !yield(r.Key(), o) {
				return
			}
		}
	}
}

// IndexBy adds an index over the objects of a view. A panic of fn leaves the object out of the index; see AddIndex.
// IndexBy fails with errNoStore for a view of a nil store.
func IndexBy[T any](v View[T], name string, fn func(*T) []string) error {
	switch {
	case v.s == nil, v.none:
		return fmt.Errorf("cannot add index %q: %w", name, errNoStore)
	case fn == nil:
		return fmt.Errorf("cannot add index %q: %w", name, errNoIndexFunc)
	}
	return v.s.AddIndex(name, indexFunc(fn))
}

// errNoStore is returned by IndexBy for a view without a store. A source or a controller has no store before it runs.
var errNoStore = errors.New("the view has no store; a source has none before it has started: declare the index with " +
	"fairlead.IndexField instead")

// indexFunc adapts a function of typed objects to records.
func indexFunc[T any](fn func(*T) []string) IndexFunc {
	return func(r *Record) ([]string, error) {
		o, err := As[T](r)
		if err != nil {
			return nil, err
		}
		return fn(o), nil
	}
}
