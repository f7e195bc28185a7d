package store

import "reflect"

// As returns the object of a record as T: an API type, unstructured.Unstructured or metav1.PartialObjectMetadata. It is
// decoded at most once while a reader uses it. It is shared, and READ-ONLY.
func As[T any](r *Record) (*T, error) {
	if r != nil {
		for v := r.forms.Load(); v != nil; v = v.next {
			if o, ok := v.obj.(*T); ok { // fast path for an object in the hot set
				v.read(r)
				return o, nil
			}
		}
	}
	o, err := r.As(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	return o.(*T), nil
}

// As is the function [As] for a type that is known only at run time. For a struct type T it returns the *T that all
// readers of the record share. For a nil record, or a type that cannot be an object, the error is a *DecodeError.
func (r *Record) As(t reflect.Type) (any, error) { return r.AsLike(nil, t) }

// AsLike is [Record.As] for a caller that has another version of the object, which may be nil. If the object has to be
// decoded, and the other one is decoded as t already, both share equal parts.
func (r *Record) AsLike(other *Record, t reflect.Type) (any, error) {
	if r == nil {
		return nil, &DecodeError{Type: t, Err: errNoRecord}
	}
	for v := r.forms.Load(); v != nil; v = v.next {
		if v.typ == t && v.obj != nil {
			v.read(r)
			return v.obj, nil
		}
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, &DecodeError{Key: r.Key(), Type: t, Err: errNoStruct}
	}
	return r.asCold(t, other)
}
