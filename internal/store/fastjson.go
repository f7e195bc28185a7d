package store

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// jsonDecoder decodes JSON into Go types. It uses go-json-experiment, which is more than twice as fast as
// sigs.k8s.io/json on Kubernetes types, but only where both give the same result: for types without interfaces, in
// which sigs.k8s.io/json keeps numbers as integers. Input that it refuses, such as duplicate names and invalid UTF-8,
// is decoded again by sigs.k8s.io/json, whose result counts.
type jsonDecoder struct {
	byType sync.Map // reflect.Type: *jsonType
}

type jsonType struct {
	fast    bool
	refused atomic.Int32
}

// maxRefused is the number of refusals after which the fast decoder is not used for a type any more.
const maxRefused = 16

func (d *jsonDecoder) unmarshal(raw []byte, into any) error {
	t := reflect.TypeOf(into).Elem()
	found, ok := d.byType.Load(t)
	if !ok {
		found, _ = d.byType.LoadOrStore(t, &jsonType{fast: !hasInterface(t, map[reflect.Type]bool{})})
	}
	of := found.(*jsonType)
	if of.fast && of.refused.Load() < maxRefused {
		if err := jsonv2.Unmarshal(raw, into, quickTimes); err == nil {
			return nil
		}
		reflect.ValueOf(into).Elem().SetZero()
		err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
		if err == nil {
			of.refused.Add(1)
		}
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// quickTimes decodes times without the second decoder that metav1.Time.UnmarshalJSON starts for the quotes.
var quickTimes = jsonv2.WithUnmarshalers(jsonv2.UnmarshalFunc(func(b []byte, t *metav1.Time) error {
	if len(b) < 2 || b[0] != '"' || bytes.IndexByte(b, '\\') >= 0 {
		return t.UnmarshalJSON(b)
	}
	parsed, err := time.Parse(time.RFC3339, string(b[1:len(b)-1]))
	if err != nil {
		return err
	}
	t.Time = parsed.Local()
	return nil
}))

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// hasInterface reports whether decoding into t may meet an interface. Types that decode themselves are not inspected.
func hasInterface(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	if p := reflect.PointerTo(t); p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler) {
		return false
	}
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return hasInterface(t.Elem(), seen)
	case reflect.Map:
		return hasInterface(t.Key(), seen) || hasInterface(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if hasInterface(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
