package decodable

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// plan describes the JSON values that a Go type accepts.
type plan struct {
	takes  takes
	digits int              // maximum number of digits
	sign   bool             // whole numbers may be negative
	elem   *plan            // of lists and maps
	fields map[string]*plan // of structs; other members are skipped
}

type takes uint8

const (
	unsure takes = iota // only decoding can tell
	anything
	free // any value whose numbers are plain
	boolean
	text
	base64
	whole    // a number without fraction
	fraction // any plain number
	list
	dict
	object
	date
	microDate
	duration
	quantity
	intOrText
)

// planner makes and caches one plan for each type.
type planner struct {
	mu    sync.Mutex
	plans map[reflect.Type]*plan
}

func (p *planner) of(t reflect.Type) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.make(t)
}

// known lists the types with their own decoder whose input the package knows.
var known = map[reflect.Type]takes{
	reflect.TypeFor[metav1.Time]():          date,
	reflect.TypeFor[metav1.MicroTime]():     microDate,
	reflect.TypeFor[metav1.Duration]():      duration,
	reflect.TypeFor[resource.Quantity]():    quantity,
	reflect.TypeFor[intstr.IntOrString]():   intOrText,
	reflect.TypeFor[runtime.RawExtension](): anything,
	reflect.TypeFor[metav1.FieldsV1]():      anything,
	reflect.TypeFor[json.RawMessage]():      anything,
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	numberType      = reflect.TypeFor[json.Number]()
	anyType         = reflect.TypeFor[any]()
)

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t == numberType || p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler)
}

// make returns the plan of t. It stores the plan before it is complete, because a type may contain itself. The caller
// holds p.mu.
func (p *planner) make(t reflect.Type) *plan {
	for t.Kind() == reflect.Pointer { // null, which every plan accepts, decodes to nil
		if decodesItself(t) {
			return &plan{}
		}
		t = t.Elem()
	}
	if made, ok := p.plans[t]; ok {
		return made
	}
	if p.plans == nil {
		p.plans = map[reflect.Type]*plan{}
	}
	made := &plan{}
	p.plans[t] = made
	if takes, ok := known[t]; ok {
		made.takes = takes
		return made
	}
	if decodesItself(t) {
		return made
	}
	switch t.Kind() {
	case reflect.Bool:
		made.takes = boolean
	case reflect.String:
		made.takes = text
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		made.takes, made.digits, made.sign = whole, digits[t.Size()], true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		made.takes, made.digits = whole, digits[t.Size()]
	case reflect.Float32:
		made.takes, made.digits = fraction, 30
	case reflect.Float64:
		made.takes, made.digits = fraction, plainDigits
	case reflect.Interface:
		if t == anyType {
			made.takes, made.digits = free, plainDigits
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			if !decodesItself(t.Elem()) {
				made.takes = base64
			}
			return made
		}
		made.takes, made.elem = list, p.make(t.Elem())
	case reflect.Map:
		if t.Key().Kind() == reflect.String && !decodesItself(t.Key()) {
			made.takes, made.elem = dict, p.make(t.Elem())
		}
	case reflect.Struct:
		fields := map[string]*plan{}
		if p.collect(t, fields) {
			made.takes, made.fields = object, fields
		}
	}
	return made
}

// digits is the number of decimal digits that always fit into an integer of the given size in bytes.
var digits = map[uintptr]int{1: 2, 2: 4, 4: 9, 8: 18}

// collect adds the members of a struct and of its embedded structs to into. It returns false if they are ambiguous.
func (p *planner) collect(t reflect.Type, into map[string]*plan) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-":
			continue
		case !f.IsExported():
			if f.Anonymous {
				return false
			}
			continue
		case strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.$/") != "":
			return false
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			if !p.collect(f.Type, into) {
				return false
			}
			continue
		case f.Anonymous && name == "":
			return false
		case name == "":
			name = f.Name
		}
		_, twice := into[name]
		if twice || strings.Contains(options, "string") {
			into[name] = &plan{}
			continue
		}
		into[name] = p.make(f.Type)
	}
	return true
}
