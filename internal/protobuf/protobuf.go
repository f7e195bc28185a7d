package protobuf

import (
	"reflect"
	"sync"
	"sync/atomic"
)

// Message is implemented by pointers to all Kubernetes types with a protobuf form.
type Message interface{ Unmarshal(data []byte) error }

// Decoder decodes messages and caches a table for each type. The zero value is ready to use. It is safe for concurrent
// use.
type Decoder struct {
	planner planner
	byType  sync.Map // reflect.Type: *decoderOf
	known   quantities
}

// decoderOf is the state of one type.
type decoderOf struct {
	plan    *plan // nil: it decodes itself
	checked atomic.Int32
	refused atomic.Bool
}

// checks is the number of messages of a type that are decoded both ways and compared before the table is trusted. The
// struct tags of a foreign type may be wrong.
const checks = 16

// Unmarshal decodes data into a message whose fields are all zero. Result and errors are those of into.Unmarshal. The
// result does not refer to data, but its strings share memory with each other.
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

// compare compares a result with that of the type's own decoder, which is authoritative.
func (d *Decoder) compare(of *decoderOf, data []byte, into Message, v reflect.Value) error {
	defer of.checked.Add(1) // last, so that refused is already set
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
