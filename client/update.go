package client

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/protobuf"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// replacing compares an update with the cached object before it is sent. done is true if the update would change
// nothing. It returns an error if the update would remove fields that the Go type of obj does not know. The cache does
// not keep managedFields, but the server does if the update has none.
func (w *writing) replacing(obj Object, want map[string]any) (done bool, _ error) {
	if _, metadata := obj.(*metav1.PartialObjectMetadata); metadata {
		return false,
			w.fail(fmt.Errorf("%w: it is the metadata alone, and an update would remove the rest; use Patch or Modify",
				ErrPruned))
	}
	r := w.whole()
	if r == nil {
		return false, nil
	}
	// Decode through the Go type of obj, so that both lack the same fields.
	have := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(Object)
	if fill(w.k, r, have) != nil {
		return false, nil
	}
	is, err := content(have)
	if err != nil {
		return false, w.fail(err)
	}
	if !w.o.Always && sameVersion(w.version, r) && w.unchanged(is, want) {
		return true, fill(w.k, r, obj)
	}
	if obj.GetUID() != r.UID() && obj.GetResourceVersion() != r.Version() {
		return false, nil // a new object, which replaces any existing one
	}
	what, err := w.unknown(r, is)
	if err != nil {
		return false, w.fail(err)
	}
	if what != "" {
		who := fmt.Sprintf("%T does not know", obj)
		if r.Content().Transform != nil {
			who = "the type, or the transform of the cache, removes or changes"
		}
		return false,
			w.fail(fmt.Errorf("%w: %s %s, and an update would remove it; use Modify or Patch", ErrPruned, who, what))
	}
	return false, nil
}

func sameVersion(version string, r *cache.Record) bool {
	return version == "" || version == r.Version()
}

// unchanged reports whether an update would leave the object unchanged.
func (w *writing) unchanged(is, want map[string]any) bool {
	switch w.sub {
	case "":
		d := tree.Difference(is, want)
		dropServerFields(d)
		return len(d) == 0
	case "status":
		return tree.Same(is["status"], want["status"])
	}
	return false // unknown which fields the server accepts
}

// unknown returns a field of a record that is missing in is, its decoded form; "" if there is none. For an update of
// the status, only fields of the status count.
func (w *writing) unknown(r *cache.Record, is map[string]any) (string, error) {
	if r.Encoding() == source.Protobuf {
		known, err := w.knowsMessage(r)
		if err != nil || !known {
			return "a field that the server sends", err
		}
	}
	raw, err := r.AppendJSON(nil)
	if err != nil {
		return "", err
	}
	stored, err := contentOf(raw)
	if err != nil {
		return "", err
	}
	if w.sub == "status" {
		return lacking(stored["status"], is["status"], "status"), nil
	}
	return lacking(stored, is, ""), nil
}

// knowsMessage reports whether the Go type of the Scheme has all fields of a protobuf record. Decoders skip unknown
// fields.
func (w *writing) knowsMessage(r *cache.Record) (bool, error) {
	typed, err := w.c.kinds.scheme.New(w.k.gvk)
	if err != nil {
		return false, err
	}
	message, ok := typed.(interface {
		protobuf.Message
		Marshal() ([]byte, error)
	})
	if !ok {
		return false, nil
	}
	if err := r.DecodeInto(message); err != nil {
		return false, err
	}
	again, err := message.Marshal()
	return bytes.Equal(again, r.Raw()), err
}

// lacking returns the path at which b lacks a value of a or has a different one; "" if there is none. It ignores nulls
// in a.
func lacking(a, b any, at string) string {
	switch a := a.(type) {
	case nil:
		return ""
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok && (b != nil || len(a) == 0 && strings.Contains(at, ".")) { // an empty spec or status equals an absent one
			return at
		}
		for _, key := range slices.Sorted(maps.Keys(a)) {
			below := key
			if at != "" {
				below = at + "." + key
			}
			if path := lacking(a[key], m[key], below); path != "" {
				return path
			}
		}
		return ""
	case []any:
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return at
		}
		for i := range a {
			if path := lacking(a[i], l[i], at+"["+strconv.Itoa(i)+"]"); path != "" {
				return path
			}
		}
		return ""
	}
	if !sameValue(a, b) {
		return at
	}
	return ""
}

// sameValue reports whether two values are equal, possibly in different notations of numbers, times, durations and
// quantities.
func sameValue(a, b any) bool {
	if tree.Same(a, b) {
		return true
	}
	switch a := a.(type) {
	case int64:
		f, ok := b.(float64)
		return ok && float64(a) == f
	case float64:
		n, ok := b.(int64)
		return ok && a == float64(n)
	case string:
		s, ok := b.(string)
		return ok && sameText(a, s)
	}
	return false
}

func sameText(a, b string) bool {
	t, err1 := time.Parse(time.RFC3339, a)
	u, err2 := time.Parse(time.RFC3339, b)
	if err1 == nil && err2 == nil && t.Equal(u) {
		return true
	}
	d, err1 := time.ParseDuration(a)
	e, err2 := time.ParseDuration(b)
	if err1 == nil && err2 == nil && d == e {
		return true
	}
	q, err1 := resource.ParseQuantity(a)
	r, err2 := resource.ParseQuantity(b)
	return err1 == nil && err2 == nil && q.Cmp(r) == 0
}
