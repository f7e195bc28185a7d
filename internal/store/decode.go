package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/decodable"
	"github.com/fairlead-io/fairlead/internal/protobuf"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/untyped"
)

// errProtobuf is returned to an unstructured reader of protobuf without a Go type. Without the type the reader would
// miss fields.
var errProtobuf = errors.New("the store holds protobuf, which cannot be read without its Go type")

var (
	errNoRecord = errors.New("the record or the target is nil")
	errNoStruct = errors.New("the target is not a struct")
)

// encoded is an encoded object. A decoder does not retain or change its bytes.
type encoded struct {
	enc source.Encoding
	raw []byte
}

// decodedForm is an object and the bytes that it was decoded from. The zero value is none.
type decodedForm struct {
	obj any
	raw []byte
}

// message returns the object as a protobuf message, or nil if it is none.
func (d decodedForm) message() protobuf.Message {
	m, _ := d.obj.(protobuf.Message)
	return m
}

// object returns the content of an unstructured object, or nil if it is none.
func (d decodedForm) object() map[string]any {
	if u, ok := d.obj.(*unstructured.Unstructured); ok {
		return u.Object
	}
	return nil
}

// decoder decodes objects of one kind. It knows no records. Its only state are facts about Go types, each of which it
// finds once.
type decoder struct {
	kind     schema.GroupVersionKind
	scheme   *runtime.Scheme // nil: protobuf is not decoded without a static type
	metadata bool            // the objects are only metadata
	shares   bool            // decoded objects may have common parts
	// mayRefuse reports whether readers may get an error for a type, although the object can be decoded.
	mayRefuse func(into any) bool

	json     jsonDecoder
	protobuf protobuf.Decoder
	untyped  untyped.Decoder
	checker  decodable.Checker
	wrong    sync.Map // reflect.Type: error, nil where the type is of the kind
	targets  targets
}

// sharesWith reports whether decodeShared shares parts of an object with another one.
func (d *decoder) sharesWith(into any, enc source.Encoding) bool {
	if _, ok := into.(*unstructured.Unstructured); ok {
		return d.shares && enc == source.JSON
	}
	_, ok := into.(protobuf.Message)
	return ok && d.shares && enc == source.Protobuf
}

// decodeShared decodes into an object that is empty, and that readers will share. It shares equal parts with like,
// another object, and an unstructured object also with any others. like may be none.
func (d *decoder) decodeShared(into any, e encoded, like decodedForm) error {
	u, ok := into.(*unstructured.Unstructured)
	if !ok {
		return d.decodeTyped(into, e, like)
	}
	was := like.object()
	return d.decodeUnstructured(u, e, func(raw []byte) (map[string]any, error) {
		switch {
		case !d.shares:
			return d.untyped.Unmarshal(raw)
		case was == nil:
			return d.untyped.UnmarshalShared(raw)
		}
		return d.untyped.UnmarshalLike(raw, like.raw, was)
	})
}

// decodeOwn decodes into an object that is empty, and that one reader owns.
func (d *decoder) decodeOwn(into any, e encoded) error {
	if u, ok := into.(*unstructured.Unstructured); ok {
		return d.decodeUnstructured(u, e, d.untyped.Unmarshal)
	}
	if _, ok := into.(protobuf.Message); e.enc == source.Protobuf && !ok {
		raw, err := d.toJSON(e)
		if err != nil {
			return err
		}
		return d.json.unmarshal(raw, into)
	}
	return d.decodeTyped(into, e, decodedForm{})
}

// decodeTyped decodes into a Go type. The result shares equal parts with like.
func (d *decoder) decodeTyped(into any, e encoded, like decodedForm) error {
	if err := d.fits(into); err != nil {
		return err
	}
	if e.enc == source.Protobuf {
		pb, ok := into.(protobuf.Message)
		if !ok {
			return errProtobuf
		}
		if err := d.protobuf.UnmarshalLike(e.raw, pb, like.raw, like.message()); err != nil {
			return err
		}
	} else if err := d.json.unmarshal(e.raw, into); err != nil {
		return err
	}
	if o, ok := into.(runtime.Object); ok && o.GetObjectKind().GroupVersionKind().Empty() {
		o.GetObjectKind().SetGroupVersionKind(d.kind)
	}
	return nil
}

// decodeUnstructured decodes into an object without a Go type. fromJSON decodes its JSON.
func (d *decoder) decodeUnstructured(
	into *unstructured.Unstructured, e encoded, fromJSON func([]byte) (map[string]any, error),
) (err error) {
	if e.enc == source.Protobuf {
		var typed runtime.Object
		if typed, err = d.decodeByScheme(e); err == nil {
			into.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		}
	} else {
		into.Object, err = fromJSON(e.raw)
	}
	if err != nil {
		return err
	}
	if into.Object == nil {
		return errors.New("not an object")
	}
	if into.GroupVersionKind().Empty() {
		into.SetGroupVersionKind(d.kind)
	}
	return nil
}

// decodeByScheme decodes into the Go type of the Scheme.
func (d *decoder) decodeByScheme(e encoded) (runtime.Object, error) {
	if d.metadata {
		o := &metav1.PartialObjectMetadata{}
		return o, d.decodeTyped(o, e, decodedForm{})
	}
	o, err := d.newObject()
	if err != nil {
		return nil, err
	}
	return o, d.decodeTyped(o, e, decodedForm{})
}

// newObject returns an empty object of the Go type of the Scheme.
func (d *decoder) newObject() (runtime.Object, error) {
	if d.scheme == nil {
		return nil, errProtobuf
	}
	return d.scheme.New(d.kind)
}

// members decodes the members of a JSON object.
func (d *decoder) members(raw []byte) (map[string]any, error) { return d.untyped.Unmarshal(raw) }

// wholeObject decodes a whole object, even if the store keeps less of it.
func (d *decoder) wholeObject(e encoded) (map[string]any, error) {
	if e.enc != source.Protobuf {
		return d.untyped.Unmarshal(e.raw)
	}
	o, err := d.newObject()
	if err != nil {
		return nil, err
	}
	typed, ok := o.(protobuf.Message)
	if !ok {
		return nil, errProtobuf
	}
	if err := d.protobuf.Unmarshal(e.raw, typed); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return d.untyped.Unmarshal(raw)
}

// toJSON encodes an object as JSON, in the form in which its Go type is encoded.
func (d *decoder) toJSON(e encoded) ([]byte, error) {
	o, err := d.decodeByScheme(e)
	if err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// typeHasAll reports whether the Go type of the Scheme has all fields of a protobuf object. Decoders skip fields that
// the type lacks.
func (d *decoder) typeHasAll(e encoded) bool {
	o, err := d.decodeByScheme(e)
	message, ok := o.(interface{ Marshal() ([]byte, error) })
	if err != nil || !ok {
		return false
	}
	again, err := message.Marshal()
	return err == nil && bytes.Equal(e.raw, again)
}

// fits returns an error for a Go type that the Scheme knows as another kind: decoding would succeed, and leave the
// object nearly empty. All versions of a kind fit.
func (d *decoder) fits(into any) error {
	t := reflect.TypeOf(into)
	if found, ok := d.wrong.Load(t); ok {
		err, _ := found.(error)
		return err
	}
	var wrong error
	if o, ok := into.(runtime.Object); ok && d.scheme != nil && !d.kind.Empty() {
		kinds, _, err := d.scheme.ObjectKinds(o)
		same := func(k schema.GroupVersionKind) bool {
			// PartialObjectMetadata is of any kind.
			return k.GroupKind() == d.kind.GroupKind() || k.Group == metav1.GroupName
		}
		if err == nil && !slices.ContainsFunc(kinds, same) {
			wrong = fmt.Errorf("the store holds objects of kind %s", d.kind.GroupKind())
		}
	}
	d.wrong.Store(t, wrong)
	return wrong
}
