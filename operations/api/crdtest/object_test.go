package crdtest

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func decode(t testing.TB, data []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// with returns a copy of obj with value at the dotted path; a nil value removes the field.
func with(obj map[string]any, path string, value any) map[string]any {
	out := maps.Clone(obj)
	if out == nil {
		out = map[string]any{}
	}
	key, rest, nested := strings.Cut(path, ".")
	switch {
	case nested:
		inner, _ := out[key].(map[string]any)
		out[key] = with(inner, rest, value)
	case value == nil:
		delete(out, key)
	default:
		out[key] = value
	}
	return out
}

// clone copies obj deeply enough for admission to change it.
func clone(t testing.TB, obj map[string]any) map[string]any { return object(t, obj) }

// check compares errs with want: empty for accepted, else a part of one of the errors.
func check(t testing.TB, errs field.ErrorList, want string) {
	t.Helper()
	switch {
	case want == "" && len(errs) > 0:
		t.Errorf("refused: %v", errs.ToAggregate())
	case want != "" && len(errs) == 0:
		t.Errorf("accepted, want an error with %q", want)
	case want != "" && !strings.Contains(errs.ToAggregate().Error(), want):
		t.Errorf("refused with %v, want %q", errs.ToAggregate(), want)
	}
}
