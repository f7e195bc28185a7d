package alloc

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
)

// slotsAnnotation holds the slots, as JSON, of objects whose status has no field of type Slots. Of the others it holds what
// must outlive a status that somebody wipes: the slots without their values.
const slotsAnnotation = "alloc.fairlead.io/slots"

// Slots are the allocated values of an object by the names of their slots.
type Slots map[string]Slot

// Slot is one allocated value, or the intent to allocate it.
type Slot struct {
	// key is the idempotency key of the allocation. Empty: nothing is allocated.
	// +optional
	Key string `json:"key,omitempty"`
	// since is when the intent was recorded.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// value is what was allocated. Empty: it may have been, and what is not known yet.
	// +optional
	Value string `json:"value,omitempty"`
	// releasing says that the value is being given back.
	// +optional
	Releasing bool `json:"releasing,omitempty"`
	// released counts the values that were given back before. It makes each key another one, and never decreases.
	// +optional
	Released int64 `json:"released,omitempty"`
}

// DeepCopyInto copies the slots, as generated code expects it.
func (in Slots) DeepCopyInto(out *Slots) { *out = in.DeepCopy() }

// DeepCopy returns a copy.
func (in Slots) DeepCopy() Slots {
	if in == nil {
		return nil
	}
	out := make(Slots, len(in))
	for name, s := range in {
		out[name] = *s.DeepCopy()
	}
	return out
}

// DeepCopyInto copies a slot.
func (in *Slot) DeepCopyInto(out *Slot) {
	*out = *in
	out.Since = in.Since.DeepCopy()
}

// DeepCopy returns a copy.
func (in *Slot) DeepCopy() *Slot {
	if in == nil {
		return nil
	}
	out := new(Slot)
	in.DeepCopyInto(out)
	return out
}

func (in Slot) equal(s Slot) bool {
	return in.Since.Equal(s.Since) && in.Value == s.Value && markOf(in) == markOf(s)
}

// Held returns the names of the slots of an object that hold a value, or may: the controller must Release them before
// the object goes.
func Held(obj client.Object) []string {
	slots, err := slotsOf(obj)
	if err != nil {
		return []string{slotsAnnotation + " (" + err.Error() + ")"}
	}
	var held []string
	for name, s := range slots {
		if s.Key != "" {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return held
}

// Values returns the recorded values of an object by slot.
func Values(obj client.Object) map[string]string {
	slots, _ := slotsOf(obj)
	out := map[string]string{}
	for name, s := range slots {
		if s.Value != "" && !s.Releasing {
			out[name] = s.Value
		}
	}
	return out
}

// keyOf returns the idempotency key of the n-th allocation of a slot: the same for everybody who computes it.
func keyOf(uid types.UID, slot string, n int64) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "fairlead/alloc/%s/%s/%d", uid, slot, n)).String()
}

var slotsType = reflect.TypeFor[Slots]()

// statusField returns the field for slots in the status of a Go type. A status that is a nil pointer is made, or else
// stands for a zero field.
func statusField(obj client.Object, fill bool) (reflect.Value, bool) {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	status := v.Elem().FieldByName("Status")
	if !status.IsValid() {
		return reflect.Value{}, false
	}
	if status.Kind() == reflect.Pointer {
		if status.Type().Elem().Kind() != reflect.Struct || !hasSlots(status.Type().Elem()) {
			return reflect.Value{}, false
		}
		if status.IsNil() {
			if !fill {
				return reflect.Value{}, true
			}
			status.Set(reflect.New(status.Type().Elem()))
		}
		status = status.Elem()
	}
	if status.Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	for i := range status.NumField() {
		if status.Type().Field(i).Type == slotsType {
			return status.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func hasSlots(t reflect.Type) bool {
	for i := range t.NumField() {
		if t.Field(i).Type == slotsType {
			return true
		}
	}
	return false
}
