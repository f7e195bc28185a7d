package protobuf

import (
	"reflect"
	"sync"
	"sync/atomic"
)

// Message is what every Kubernetes type that has a protobuf form implements, by a pointer.
type Message interface{ Unmarshal(data []byte) error }

// Decoder decodes messages and keeps what it has learnt about their types. The zero value is ready; it is safe for
// concurrent use.
type Decoder struct {
	planner planner
	byType  sync.Map // reflect.Type: *decoderOf
	known   quantities
}

// decoderOf is for one type.
type decoderOf struct {
	plan    *plan // nil: it decodes itself
	checked atomic.Int32
	refused atomic.Bool
}

// checks is how many messages of a type are decoded both ways, and compared, before the table is trusted: the tags of a
// type of somebody else's may lie.
const checks = 16

// Unmarshal decodes data into a message whose fields are all zero. The result is that of into.Unmarshal, errors
// included. It does not refer to data; strings of it share memory with each other.
func (d *Decoder) Unmarshal(data []byte, into Message) error {
	of := d.of(reflect.TypeOf(into))
	if of.plan == nil || of.refused.Load() {
		return into.Unmarshal(data)
	}
	dec := decoding{known: &d.known, left: len(data)}
	v := reflect.ValueOf(into)
	if dec.message(of.plan, data, v.UnsafePointer()) != nil {
		v.Elem().SetZero()
		return into.Unmarshal(data)
	}
	if of.checked.Load() < checks {
		return d.compare(of, data, into, v)
	}
	return nil
}

func (d *Decoder) of(t reflect.Type) *decoderOf {
	if found, ok := d.byType.Load(t); ok {
		return found.(*decoderOf)
	}
	of := &decoderOf{}
	if t.Kind() == reflect.Pointer {
		of.plan = d.planner.of(t.Elem())
	}
	found, _ := d.byType.LoadOrStore(t, of)
	return found.(*decoderOf)
}

// compare holds a result against that of the type itself, which counts.
func (d *Decoder) compare(of *decoderOf, data []byte, into Message, v reflect.Value) error {
	defer of.checked.Add(1) // at the end: what was found out is known then
	own := reflect.New(v.Type().Elem())
	if err := own.Interface().(Message).Unmarshal(data); err != nil {
		v.Elem().SetZero()
		return into.Unmarshal(data)
	}
	if !reflect.DeepEqual(own.Interface(), v.Interface()) {
		of.refused.Store(true)
		v.Elem().Set(own.Elem())
	}
	return nil
}
