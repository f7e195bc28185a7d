package client

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/cache"
)

// isNil reports whether obj is nil or a nil pointer.
func isNil(obj any) bool {
	v := reflect.ValueOf(obj)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Key names an object. Namespace is empty for cluster-scoped objects.
type Key = cache.Key

// Object is any Kubernetes object: typed, *unstructured.Unstructured or *metav1.PartialObjectMetadata.
type Object interface {
	metav1.Object
	runtime.Object
}

// ObjectList is a list of objects, such as *corev1.PodList or *unstructured.UnstructuredList.
type ObjectList interface {
	metav1.ListInterface
	runtime.Object
}

// KeyOf returns the key of obj, or an empty key if obj is nil.
func KeyOf(obj metav1.Object) Key {
	if isNil(obj) {
		return Key{}
	}
	return Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// ObjectOf is a pointer to a Go type that the Scheme knows, such as *corev1.Pod for corev1.Pod.
type ObjectOf[T any] interface {
	*T
	metav1.Object
	runtime.Object
}
