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

// slotsAnnotation holds the slots as JSON if the status has no field of type Slots. Otherwise it holds the marks: the
// slots without their values, which survive the loss of the status.
const slotsAnnotation = "alloc.fairlead.io/slots"

// Slots maps the names of slots to the allocated values of an object.
type Slots map[string]Slot

// Slot is one allocated value, or the intent to allocate it.
type Slot struct {
	// key is the idempotency key of the allocation. It is empty if no value is allocated.
	// +optional
	Key string `json:"key,omitempty"`
	// since is the time at which the intent was recorded.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// value is the allocated value. If it is empty, the allocation may have happened, but its value is not recorded yet.
	// +optional
	Value string `json:"value,omitempty"`
	// releasing is true while the value is being released.
	// +optional
	Releasing bool `json:"releasing,omitempty"`
	// released counts the values that were released before. It makes each key unique and never decreases.
	// +optional
	Released int64 `json:"released,omitempty"`
}

// DeepCopyInto copies the slots into out, for generated code.
func (in Slots) DeepCopyInto(out *Slots) { *out = in.DeepCopy() }

// DeepCopy returns a deep copy.
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

// DeepCopyInto copies the slot into out.
func (in *Slot) DeepCopyInto(out *Slot) {
	*out = *in
	out.Since = in.Since.DeepCopy()
}

// DeepCopy returns a deep copy.
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

// Held returns the names of the slots of an object that may hold a value. The controller must Release them before the
// object is gone.
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

// Values returns the recorded values of an object by slot. It omits slots that are being released.
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

// keyOf returns the idempotency key of the n-th allocation of a slot. It is deterministic, so every process computes
// the same key.
func keyOf(uid types.UID, slot string, n int64) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "fairlead/alloc/%s/%s/%d", uid, slot, n)).String()
}

var slotsType = reflect.TypeFor[Slots]()

// statusField returns the field of type Slots in the status of obj, and whether the type has one. If the status is a
// nil pointer, statusField allocates it if fill is true, and otherwise returns the zero Value.
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
