package main

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/store"
)

// view reads the objects of a store for handlers and readers.
type view interface {
	read(r *store.Record)
	get(k store.Key) error
	index(value string) (n int)
}

// viewOf reads objects as T and calls touch for each.
type viewOf[T any] struct {
	store *store.Store
	touch func(*T) int
}

// sinkhole keeps the compiler from eliminating reads.
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

// viewFor returns the view of a corpus. It reads custom resources as the Go type of their operator, pods in protobuf
// as corev1.Pod, and pods in JSON as unstructured objects, like client-go dynamic.
func viewFor(s *store.Store, corpus string, protobuf bool) view {
	switch {
	case corpus == "widgets":
		return viewOf[widget]{s, func(w *widget) int { return w.Spec.Replicas + len(w.Status.Phase) }}
	case protobuf:
		return viewOf[corev1.Pod]{s, func(p *corev1.Pod) int { return len(p.Spec.Containers) + len(p.Status.Phase) }}
	}
	return viewOf[unstructured.Unstructured]{s, func(u *unstructured.Unstructured) int { return len(u.Object) }}
}
