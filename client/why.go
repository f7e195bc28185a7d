package client

import (
	"fmt"
	"strings"

	"github.com/fairlead-io/fairlead/why"
)

// Why implements flow.Explained: what the object that is waited for looks like in the cache, or where it is not
// watched, as the server has told last.
func (w *objectWait[T, PT]) Why() []why.Cause {
	k, err := kindFor[T, PT](w.c)
	if err != nil {
		return nil // Check says so
	}
	obj := PT(w.last.Load())
	if st := w.c.watchedIn(k, w.key.Namespace); st != nil {
		obj = nil
		if r, ok := st.Get(w.key); ok {
			if obj = PT(new(T)); fill(k, r, obj) != nil {
				obj = nil
			}
		}
	}
	name := k.gvk.Kind + " " + w.key.String()
	c := why.Cause{
		Type: why.Parked, Message: "waits for a condition of " + name, Evidence: map[string]string{},
		About:  &why.Object{Group: k.gvk.Group, Kind: k.gvk.Kind, Namespace: w.key.Namespace, Name: w.key.Name},
		Advice: "Ask why that object does not move.",
	}
	switch {
	case w.gone:
		c.Message = "waits for the end of " + name
	case w.condition != "":
		c.Message = fmt.Sprintf("waits for condition %s of %s", w.condition, name)
		c.Evidence["condition"] = w.condition
	}
	seen := "there is no " + name
	switch {
	case obj != nil:
		seen = w.seen(obj, c.Evidence)
	case !w.gone:
		c.Advice = "It does not exist: make it, or see who is to make it."
	}
	c.Evidence["seen"] = seen
	c.Message += ": " + seen
	return []why.Cause{c}
}

// seen says what is of interest of an object.
func (w *objectWait[T, PT]) seen(obj PT, evidence map[string]string) string {
	evidence["version"] = obj.GetResourceVersion()
	if at := obj.GetDeletionTimestamp(); at != nil {
		text := "it is being deleted"
		if f := obj.GetFinalizers(); len(f) > 0 {
			evidence["finalizers"] = strings.Join(f, ", ")
			text += ", and kept by " + evidence["finalizers"]
		}
		return text
	}
	if w.gone {
		return "it is there, and not deleted"
	}
	all, err := conditionsOf(obj)
	if err != nil || w.condition == "" {
		return "it is not so at version " + obj.GetResourceVersion()
	}
	for _, have := range all {
		if have.Type == w.condition {
			says := []string{string(have.Status), have.Reason, have.Message}
			return strings.Join(says, ", ")
		}
	}
	return "it has no such condition"
}
