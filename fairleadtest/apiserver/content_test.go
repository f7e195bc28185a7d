package apiserver

import (
	"encoding/json"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestSameContent: only the times in managedFields may differ.
func TestSameContent(t *testing.T) {
	t.Parallel()
	const base = `{"metadata":{"name":"a","managedFields":[{"manager":"m","time":"1"}]},"spec":{"time":"1"}}`
	for name, c := range map[string]struct {
		a, b string
		want bool
	}{
		"equal":              {base, base, true},
		"another time":       {base, `{"metadata":{"name":"a","managedFields":[{"manager":"m","time":"2"}]},"spec":{"time":"1"}}`, true},
		"no time":            {base, `{"metadata":{"name":"a","managedFields":[{"manager":"m"}]},"spec":{"time":"1"}}`, true},
		"another manager":    {base, `{"metadata":{"name":"a","managedFields":[{"manager":"n","time":"1"}]},"spec":{"time":"1"}}`, false},
		"one manager more":   {base, `{"metadata":{"name":"a","managedFields":[{"manager":"m"},{"manager":"n"}]},"spec":{"time":"1"}}`, false},
		"no managers":        {base, `{"metadata":{"name":"a"},"spec":{"time":"1"}}`, false},
		"an empty list":      {`{"metadata":{"managedFields":[]}}`, `{"metadata":{}}`, true},
		"another name":       {base, `{"metadata":{"name":"b","managedFields":[{"manager":"m","time":"1"}]},"spec":{"time":"1"}}`, false},
		"a time in the spec": {base, `{"metadata":{"name":"a","managedFields":[{"manager":"m","time":"1"}]},"spec":{"time":"2"}}`, false},
		"a field more":       {base, `{"metadata":{"name":"a","managedFields":[{"manager":"m"}]},"spec":{"time":"1"},"status":{}}`, false},
		"no metadata":        {`{"spec":{}}`, `{"spec":{},"metadata":{}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a, b unstructured.Unstructured
			if err := errors.Join(json.Unmarshal([]byte(c.a), &a.Object), json.Unmarshal([]byte(c.b), &b.Object)); err != nil {
				t.Fatal(err)
			}
			if got, back := sameContent(&a, &b), sameContent(&b, &a); got != c.want || back != c.want {
				t.Errorf("%t and the other way round %t, want %t", got, back, c.want)
			}
		})
	}
}
