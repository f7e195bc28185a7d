package main

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/store"
)

// view is how the handlers and readers of a store see its objects.
type view interface {
	read(r *store.Record)
	get(k store.Key) error
	index(value string) (n int)
}

// viewOf reads objects as T, and touches each.
type viewOf[T any] struct {
	store *store.Store
	touch func(*T) int
}

// sinkhole keeps the compiler from leaving reads out.
var sinkhole atomic.Int64

func (v viewOf[T]) read(r *store.Record) {
	if o, err := store.As[T](r); err == nil {
		sinkhole.Add(int64(v.touch(o)))
	}
}

func (v viewOf[T]) get(k store.Key) error {
	_, err := store.Of[T](v.store).Get(k)
	return err
}

func (v viewOf[T]) index(value string) (n int) {
	for range store.Of[T](v.store).Index("bucket", value) {
		n++
	}
	return n
}

// viewFor: custom resources as the Go type that their operator has, pods of the protobuf wire as theirs, and pods of
// the JSON wire as unstructured objects, as client-go dynamic reads them.
func viewFor(s *store.Store, corpus string, protobuf bool) view {
	switch {
	case corpus == "widgets":
		return viewOf[widget]{s, func(w *widget) int { return w.Spec.Replicas + len(w.Status.Phase) }}
	case protobuf:
		return viewOf[corev1.Pod]{s, func(p *corev1.Pod) int { return len(p.Spec.Containers) + len(p.Status.Phase) }}
	}
	return viewOf[unstructured.Unstructured]{s, func(u *unstructured.Unstructured) int { return len(u.Object) }}
}
