package store

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/protobuf"
	"github.com/fairlead-io/fairlead/source"
)

// usable says why nothing can be done with a cache that NewCache has not made.
func (c *Cache) usable() error {
	if c == nil || c.entries == nil {
		return ErrNoCache
	}
	return nil
}

// AcquireFor is Acquire for a Go type that the Scheme knows.
func AcquireFor[T any](c *Cache, options ...source.Option) (*Handle, error) {
	if err := c.usable(); err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %T: %w", *new(T), err)
	}
	o, ok := any(new(T)).(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("cannot acquire a store for %T: not an API type", *new(T))
	}
	kinds, _, err := c.opt.Scheme.ObjectKinds(o)
	if err != nil {
		return nil, fmt.Errorf("cannot acquire a store for %T: %w", *new(T), err)
	}
	return c.Open(Request{Kind: kinds[0], Options: options})
}

// distinct returns namespaces in order, each once, and what tells them from others.
func distinct(namespaces []string) ([]string, string) {
	if len(namespaces) == 0 || slices.Contains(namespaces, "") { // "" is all of them
		return nil, ""
	}
	namespaces = slices.Compact(slices.Sorted(slices.Values(namespaces)))
	return namespaces, strings.Join(namespaces, ",")
}

// hasProtobuf says whether the Go type of a kind can be read from protobuf.
func (c *Cache) hasProtobuf(kind schema.GroupVersionKind) bool {
	if c.opt.Scheme == nil {
		return false
	}
	o, err := c.opt.Scheme.New(kind)
	if err != nil {
		return false
	}
	if _, generic := o.(*unstructured.Unstructured); generic {
		return false
	}
	_, ok := o.(protobuf.Message)
	return ok
}
