package apiserver

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestSameContent: only the times in managedFields may differ.
func TestSameContent(t *testing.T) {
	t.Parallel()
	object := func(managers, spec string) string {
		return `{"metadata":{"name":"a","managedFields":[` + managers + `]},"spec":` + spec + `}`
	}
	base := object(`{"manager":"m","time":"1"}`, `{"time":"1"}`)
	for name, c := range map[string]struct {
		a, b string
		want bool
	}{
		"equal":              {base, base, true},
		"another time":       {base, object(`{"manager":"m","time":"2"}`, `{"time":"1"}`), true},
		"no time":            {base, object(`{"manager":"m"}`, `{"time":"1"}`), true},
		"another manager":    {base, object(`{"manager":"n","time":"1"}`, `{"time":"1"}`), false},
		"one manager more":   {base, object(`{"manager":"m"},{"manager":"n"}`, `{"time":"1"}`), false},
		"no managers":        {base, `{"metadata":{"name":"a"},"spec":{"time":"1"}}`, false},
		"an empty list":      {`{"metadata":{"managedFields":[]}}`, `{"metadata":{}}`, true},
		"another name":       {base, strings.Replace(base, `"a"`, `"b"`, 1), false},
		"a time in the spec": {base, object(`{"manager":"m","time":"1"}`, `{"time":"2"}`), false},
		"a field more":       {base, strings.Replace(base, `"spec"`, `"status":{},"spec"`, 1), false},
		"no metadata":        {`{"spec":{}}`, `{"spec":{},"metadata":{}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a, b unstructured.Unstructured
			err := errors.Join(json.Unmarshal([]byte(c.a), &a.Object), json.Unmarshal([]byte(c.b), &b.Object))
			if err != nil {
				t.Fatal(err)
			}
			if got, back := sameContent(&a, &b), sameContent(&b, &a); got != c.want || back != c.want {
				t.Errorf("%t and the other way round %t, want %t", got, back, c.want)
			}
		})
	}
}
