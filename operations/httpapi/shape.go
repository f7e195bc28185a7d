package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
)

var durationType = reflect.TypeFor[metav1.Duration]()

// misshapen returns the parts of a JSON value that do not fit a type: each unknown member and each value of a wrong
// type, with its path, up to a bound. A decoder would report only the first one, and none within types that decode
// themselves.
func misshapen(path string, raw json.RawMessage, t reflect.Type) (all []operations.FieldError) {
	kind := kindOf(raw)
	wrong := []operations.FieldError{{Field: path, Problem: "must not be of type " + kind}}
	if t.Kind() == reflect.Pointer {
		if t = t.Elem(); kind == "null" {
			return nil
		}
	}
	switch {
	case t == durationType:
		if json.Unmarshal(raw, new(metav1.Duration)) != nil {
			return []operations.FieldError{{Field: path, Problem: `must be a duration in quotes, such as "30s" or "2h"`}}
		}
		return nil
	case kind == "null": // null leaves a field unchanged, as in encoding/json
		return nil
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()): // free-form
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		members, ok := object(raw)
		if !ok {
			return wrong
		}
		fields := map[string]reflect.Type{}
		fieldsOf(t, fields)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			switch field, ok := find(fields, name); {
			case len(all) > maxFaults:
				return all
			case ok:
				all = append(all, misshapen(path+"."+field, members[name], fields[field])...)
			default:
				all = append(all, operations.FieldError{
					Field: path + "." + short(name, maxName), Problem: "is not a field of a request",
				})
			}
		}
	case reflect.Map:
		members, ok := object(raw)
		if !ok {
			return wrong
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if len(all) > maxFaults {
				return all
			}
			all = append(all, misshapen(fmt.Sprintf("%s[%s]", path, short(name, maxName)), members[name], t.Elem())...)
		}
	case reflect.Slice:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return wrong
		}
		for i, item := range items {
			if len(all) > maxFaults {
				return all
			}
			all = append(all, misshapen(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())...)
		}
	default:
		if json.Unmarshal(raw, reflect.New(t).Interface()) != nil {
			return wrong
		}
	}
	return all
}

// kindOf returns the type of a JSON value.
func kindOf(raw json.RawMessage) string {
	switch raw = bytes.TrimSpace(raw); raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "bool"
	case 'n':
		return "null"
	default:
		return "number"
	}
}

func object(raw json.RawMessage) (members map[string]json.RawMessage, ok bool) {
	return members, json.Unmarshal(raw, &members) == nil
}

// fieldsOf collects the fields of a struct and its embedded structs by JSON name.
func fieldsOf(t reflect.Type, into map[string]reflect.Type) {
	for f := range t.Fields() {
		if f.Anonymous {
			fieldsOf(f.Type, into)
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			into[name] = f.Type
		}
	}
}

// find returns the field that a member is decoded into. Names match in any case.
func find(fields map[string]reflect.Type, member string) (name string, ok bool) {
	if _, ok = fields[member]; ok {
		return member, true
	}
	for name = range fields {
		if strings.EqualFold(name, member) {
			return name, true
		}
	}
	return "", false
}
