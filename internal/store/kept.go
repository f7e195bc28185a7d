package store

import (
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/cut"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/source"
)

// kept is a Content prepared for the objects of one kind.
type kept struct {
	Content
	paths     *cut.Paths
	err       error // if set, all objects are refused
	message   *cut.Message
	noMessage error // why protobuf cannot be cut
}

// ready prepares a Content for objects of Go type t, which is nil if it is not known.
func (c Content) ready(t reflect.Type) kept {
	out := kept{Content: c, noMessage: errProtobuf}
	out.paths, out.err = c.cuts()
	if c.Metadata {
		t = reflect.TypeFor[metav1.PartialObjectMetadata]()
	}
	if out.paths.Len() > 0 && t != nil {
		out.message, out.noMessage = out.paths.Message(t)
	}
	return out
}

// typeOf returns the Go type of a kind, or nil if it has none.
func typeOf(scheme *runtime.Scheme, kind schema.GroupVersionKind) reflect.Type {
	if scheme == nil {
		return nil
	}
	o, err := scheme.New(kind)
	if err != nil {
		return nil
	}
	if _, generic := o.(runtime.Unstructured); generic {
		return nil
	}
	return reflect.TypeOf(o).Elem()
}

// append appends the kept content of an object to dst and returns the set of dropped paths. It calls Content.Keep.
func (c *kept) append(dst []byte, o *source.Object) ([]byte, cut.Set, error) {
	if len(o.Raw) == 0 { // a deletion whose last state cannot be read
		return dst, 0, nil
	}
	all, err := c.keepsAll(&o.Header)
	switch {
	case err != nil:
		return dst, 0, err
	case all && c.ManagedFields:
		return append(dst, o.Raw...), 0, nil
	case all:
		return o.AppendPruned(dst), 0, nil
	}
	raw := o.Raw
	if !c.ManagedFields {
		raw = o.AppendPruned(nil)
	}
	if o.Encoding != source.Protobuf {
		return c.paths.AppendJSON(dst, raw)
	}
	if c.message == nil {
		return dst, 0, fmt.Errorf("cannot drop fields of protobuf: %w", c.noMessage)
	}
	return c.message.Append(dst, raw)
}

// keepsAll reports whether no field of an object is dropped.
func (c *kept) keepsAll(h *source.Header) (all bool, err error) {
	if c.err != nil || c.paths.Len() == 0 || c.Keep == nil {
		return c.paths.Len() == 0, c.err
	}
	labels := make(map[string]string, len(h.Labels))
	for _, l := range h.Labels {
		labels[string(l.Key)] = string(l.Value)
	}
	if p := protect.Call(func() { all = c.Keep(string(h.Namespace), string(h.Name), labels) }); p != nil {
		return false, fmt.Errorf("cannot tell whether to drop fields: Keep panicked: %v", p.Value)
	}
	return all, nil
}

// dropped returns the paths of a set.
func (c *kept) dropped(set cut.Set) (paths []string) {
	for i := range c.paths.Len() {
		if set.Has(i) {
			paths = append(paths, c.paths.Text(i))
		}
	}
	return paths
}

// transformed returns a decoded object as readers see it. It calls user code.
func (c *kept) transformed(o any) (out any, err error) {
	if c.Transform == nil {
		return o, nil
	}
	if p := protect.Call(func() { out, err = c.Transform(o) }); p != nil {
		return nil, fmt.Errorf("the transform panicked: %v", p.Value)
	}
	if err != nil {
		return nil, fmt.Errorf("the transform failed: %w", err)
	}
	if v := reflect.ValueOf(out); !v.IsValid() || v.Type() != reflect.TypeOf(o) || v.IsNil() {
		return nil, fmt.Errorf("the transform returned a %T instead of a %T", out, o)
	}
	return out, nil
}

// reduce cuts an object to its metadata, if the store holds only that.
func (c *kept) reduce(o *source.Object) {
	if c.Metadata {
		o.KeepMetadata()
	}
}

// reduceQuarantined cuts the bytes of an unreadable object to the kept content, or drops them if that is not possible.
// Content.Keep makes no exceptions, since it may be the reason.
func (c *kept) reduceQuarantined(q *source.Quarantined) {
	if !c.Metadata && c.paths.Len() == 0 && c.err == nil {
		return
	}
	o := source.Object{Raw: q.Raw, Encoding: q.Encoding}
	q.Raw = nil
	if err := source.Scan(o.Encoding, o.Raw, &o.Header); err != nil {
		if _, mistyped := errors.AsType[*source.FieldError](err); !mistyped {
			return
		}
	}
	c.reduce(&o)
	without := *c
	without.Keep = nil
	if raw, _, err := without.append(nil, &o); err == nil {
		q.Raw = raw
	}
}

// readable returns an error if the objects cannot be read as the type of into.
func (c *kept) readable(into any) error {
	if _, metadata := into.(*metav1.PartialObjectMetadata); c.Metadata && !metadata {
		return ErrMetadataOnly
	}
	return nil
}
