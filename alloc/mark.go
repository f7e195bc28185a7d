package alloc

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"github.com/fairlead-io/fairlead/client"
)

// The mark of a slot is the slot without its value. Objects with slots in their status have the marks in the
// annotation. A mark survives the loss of the status. It records that a resource may exist for a key, that the key is
// being released, and which keys are used up. Slot and mark are combined when they are read; the one with the higher
// number wins.

// markOf returns the mark of a slot.
func markOf(s Slot) Slot { return Slot{Key: s.Key, Releasing: s.Releasing, Released: s.Released} }

// together combines a slot and its mark.
func together(s, mark Slot) Slot {
	switch {
	case mark.Released > s.Released:
		return mark
	case mark.Released < s.Released:
		return s
	}
	if s.Key == "" {
		s.Key = mark.Key
	}
	if s.Value == "" {
		s.Value = mark.Value // of an object that is read without its Go type
	}
	s.Releasing = s.Releasing || mark.Releasing
	return s
}

// place is a storage place of a slot.
type place int

const (
	inSlot place = iota // the status, or the annotation if the status has no slots
	inMark
)

// kept returns the slots that an object has at a place. inStatus reports whether its status has a field for slots.
func kept(obj client.Object, at place) (_ Slots, inStatus bool, err error) {
	f, inStatus := statusField(obj, false)
	if at == inMark || !inStatus {
		text, ok := obj.GetAnnotations()[slotsAnnotation]
		if !ok {
			return nil, inStatus, nil
		}
		var s Slots
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return nil, inStatus, fmt.Errorf("malformed annotation %s: %w", slotsAnnotation, err)
		}
		return s, inStatus, nil
	}
	if !f.IsValid() {
		return nil, true, nil
	}
	return f.Interface().(Slots).DeepCopy(), true, nil
}

// keep sets one slot of an object at a place.
func keep(obj client.Object, at place, name string, s Slot) error {
	slots, inStatus, err := kept(obj, at)
	if err != nil {
		return err
	}
	if slots == nil {
		slots = Slots{}
	}
	slots[name] = s
	if inStatus && at == inSlot {
		f, _ := statusField(obj, true)
		f.Set(reflect.ValueOf(slots))
		return nil
	}
	text, err := json.Marshal(slots)
	if err != nil {
		return err
	}
	a := maps.Clone(obj.GetAnnotations())
	if a == nil {
		a = map[string]string{}
	}
	a[slotsAnnotation] = string(text)
	obj.SetAnnotations(a)
	return nil
}

// slotsOf returns the slots of an object, combined with their marks.
func slotsOf(obj client.Object) (Slots, error) {
	if v := reflect.ValueOf(obj); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, nil
	}
	slots, inStatus, err := kept(obj, inSlot)
	if err != nil || !inStatus {
		return slots, err
	}
	marks, _, err := kept(obj, inMark)
	if err != nil || len(marks) == 0 {
		return slots, err
	}
	if slots == nil {
		slots = Slots{}
	}
	for name, m := range marks {
		slots[name] = together(slots[name], m)
	}
	return slots, nil
}
