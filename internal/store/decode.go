package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/protobuf"
	"github.com/fairlead-io/fairlead/internal/source"
)

// errProtobuf is returned to an unstructured reader of protobuf without a Go type. Without the type the reader would
// miss fields.
var errProtobuf = errors.New("the store holds protobuf, which cannot be read without its Go type")

var (
	errNoRecord = errors.New("the record or the target is nil")
	errNoStruct = errors.New("the target is not a struct")
)

// decode makes a new object, a *T for t = T, from the bytes of a record. It shares equal parts with the decoded form of
// other, another version, which may be nil. Unstructured objects also share parts with any others.
func (r *Record) decode(t reflect.Type, raw []byte, other *Record) (any, error) {
	o := reflect.New(t).Interface()
	err := r.codec.content.readable(o)
	if err != nil {
		return nil, &DecodeError{Key: r.Key(), Type: t, Err: err}
	}
	buf := r.codec.buffer()
	defer r.codec.scratch.Put(buf)
	like, likeRaw := other.atHand(t, r.codec, buf)
	if u, ok := o.(*unstructured.Unstructured); ok {
		var was map[string]any
		if like != nil {
			was = like.(*unstructured.Unstructured).Object
		}
		err = decodeUnstructured(r, raw, u, func(raw []byte) (map[string]any, error) {
			d := &r.codec.decoders.untyped
			switch {
			case !r.codec.shares():
				return d.Unmarshal(raw)
			case was == nil:
				return d.UnmarshalShared(raw)
			}
			return d.UnmarshalLike(raw, likeRaw, was)
		})
	} else {
		err = decodeInto(r, raw, o, likeRaw, like)
	}
	if err == nil {
		var out any
		if out, err = r.codec.content.transformed(o); err == nil {
			o = out
		}
	}
	if err != nil {
		r.codec.noteUndecoded(r, o, err)
		return nil, &DecodeError{Key: r.Key(), Type: t, Err: err}
	}
	return o, nil
}

// DecodeInto decodes the object into obj, a pointer to any type that fits it, and overwrites its former content. A type
// without protobuf support is decoded from the JSON that the Go type of the Scheme encodes.
func (r *Record) DecodeInto(obj any) error {
	v := reflect.ValueOf(obj)
	if r == nil || v.Kind() != reflect.Pointer || v.IsNil() {
		return &DecodeError{Type: reflect.TypeOf(obj), Err: errNoRecord}
	}
	v.Elem().SetZero()
	if err := r.codec.content.readable(obj); err != nil {
		return &DecodeError{Key: r.Key(), Type: reflect.TypeOf(obj), Err: err}
	}
	if err := r.decodeOwn(obj); err != nil {
		r.codec.noteUndecoded(r, obj, err)
		return err
	}
	out, err := r.codec.content.transformed(obj)
	if err != nil {
		return &DecodeError{Key: r.Key(), Type: v.Type(), Err: err}
	}
	if out != obj {
		v.Elem().Set(reflect.ValueOf(out).Elem())
	}
	return nil
}

// decodeOwn decodes the kept object into obj, which is empty.
func (r *Record) decodeOwn(obj any) error {
	buf := r.codec.buffer()
	defer r.codec.scratch.Put(buf)
	raw, err := r.codec.pack.Read(&r.body, buf)
	if err != nil {
		return err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return decodeUnstructured(r, raw, u, r.codec.decoders.untyped.Unmarshal)
	}
	if _, ok := obj.(protobuf.Message); r.Encoding() == source.Protobuf && !ok {
		if raw, err = r.AppendJSON(nil); err != nil {
			return err
		}
		return r.codec.decoders.unmarshal(raw, obj)
	}
	return decodeInto(r, raw, obj, nil, nil)
}

// atHand returns a decoded form of a record and the bytes that it was decoded from (see Packer.Read). It returns nil if
// there is none whose parts a record of the codec may share.
func (r *Record) atHand(t reflect.Type, of *codec, buf *[]byte) (obj any, raw []byte) {
	if r == nil || r.codec != of || !of.shares() {
		return nil, nil
	}
	for v := r.forms.Load(); v != nil; v = v.next {
		if v.typ != t {
			continue
		}
		if obj = v.value(); obj == nil {
			break
		}
		if raw, err := r.codec.pack.Read(&r.body, buf); err == nil {
			return obj, raw
		}
		break
	}
	return nil, nil
}

// shares reports whether decoded objects may have common parts. They may not if a Transform changes them, or if
// mutations are detected.
func (c *codec) shares() bool { return !c.hot.detect && c.content.Transform == nil }

// name sets the kind of an object that lacks one.
func (c *codec) name(o any) {
	if o, ok := o.(runtime.Object); ok && o.GetObjectKind().GroupVersionKind().Empty() {
		o.GetObjectKind().SetGroupVersionKind(c.kind)
	}
}

// decodeInto decodes into a Go type. If like is not nil, it was decoded from likeRaw, and the result shares equal parts
// with it.
func decodeInto(r *Record, raw []byte, into any, likeRaw []byte, like any) error {
	if err := r.codec.fits(into); err != nil {
		return err
	}
	d := &r.codec.decoders
	if r.Encoding() == source.Protobuf {
		pb, ok := into.(protobuf.Message)
		if !ok {
			return errProtobuf
		}
		if err := d.protobuf.UnmarshalLike(raw, pb, likeRaw, messageOf(like)); err != nil {
			return err
		}
	} else if err := d.unmarshal(raw, into); err != nil {
		return err
	}
	r.codec.name(into)
	return nil
}

// messageOf returns an object as a protobuf message, or nil if it is none.
func messageOf(o any) protobuf.Message {
	m, _ := o.(protobuf.Message)
	return m
}

// decodeUnstructured is decodeInto for an object without a Go type. fromJSON decodes its JSON.
func decodeUnstructured(
	r *Record, raw []byte, into *unstructured.Unstructured, fromJSON func([]byte) (map[string]any, error),
) (err error) {
	if r.Encoding() == source.Protobuf {
		var typed runtime.Object
		if typed, err = r.codec.decodeByScheme(r, raw); err == nil {
			into.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		}
	} else {
		into.Object, err = fromJSON(raw)
	}
	if err != nil {
		return err
	}
	if into.Object == nil {
		return errors.New("not an object")
	}
	if into.GroupVersionKind().Empty() {
		into.SetGroupVersionKind(r.codec.kind)
	}
	return nil
}

// fits returns an error for a Go type that the Scheme knows as another kind: decoding would succeed, and leave the
// object nearly empty. All versions of a kind fit.
func (c *codec) fits(into any) error {
	t := reflect.TypeOf(into)
	if known, ok := c.decoders.fits.Load(t); ok {
		err, _ := known.(error)
		return err
	}
	var wrong error
	if o, ok := into.(runtime.Object); ok && c.scheme != nil && !c.kind.Empty() {
		kinds, _, err := c.scheme.ObjectKinds(o)
		same := func(k schema.GroupVersionKind) bool {
			return k.GroupKind() == c.kind.GroupKind() || k.Group == metav1.GroupName // PartialObjectMetadata is of any kind
		}
		if err == nil && !slices.ContainsFunc(kinds, same) {
			wrong = fmt.Errorf("the store holds objects of kind %s", c.kind.GroupKind())
		}
	}
	c.decoders.fits.Store(t, wrong)
	return wrong
}

// decodeByScheme decodes protobuf into the Go type of the Scheme.
func (c *codec) decodeByScheme(r *Record, raw []byte) (runtime.Object, error) {
	if c.content.Metadata {
		o := &metav1.PartialObjectMetadata{}
		return o, decodeInto(r, raw, o, nil, nil)
	}
	if c.scheme == nil {
		return nil, errProtobuf
	}
	o, err := c.scheme.New(c.kind)
	if err != nil {
		return nil, err
	}
	return o, decodeInto(r, raw, o, nil, nil)
}

// typeHasAll reports whether the Go type of the Scheme has all fields of a protobuf record. Decoders skip fields that
// the type lacks.
func (r *Record) typeHasAll() bool {
	raw, err := r.load()
	if err != nil {
		return false
	}
	o, err := r.codec.decodeByScheme(r, raw)
	message, ok := o.(interface{ Marshal() ([]byte, error) })
	if err != nil || !ok {
		return false
	}
	again, err := message.Marshal()
	return err == nil && bytes.Equal(raw, again)
}

// AppendJSON appends the object as it is kept to dst, as JSON. An object that came as protobuf is decoded through the
// Scheme and encoded again. A store of metadata appends the metadata only.
func (r *Record) AppendJSON(dst []byte) ([]byte, error) {
	if r.Encoding() == source.JSON {
		return r.AppendRaw(dst), nil
	}
	o, err := r.codec.decodeByScheme(r, r.Raw())
	if err == nil {
		var out []byte
		if out, err = json.Marshal(o); err == nil {
			return append(dst, out...), nil
		}
	}
	return dst, fmt.Errorf("cannot encode %s as JSON: %w", r.Key(), err)
}
