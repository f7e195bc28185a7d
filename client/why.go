package client

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/condition"
	"github.com/fairlead-io/fairlead/why"
)

// Why implements flow.Explained. It describes the awaited object as the cache has it. If the kind is not watched, it
// uses the server's last answer.
func (w *objectWait[T, PT]) Why() []why.Cause {
	k, err := kindFor[T, PT](w.host.reader.kinds)
	if err != nil {
		return nil // Check returns the error
	}
	obj := PT(w.last.Load())
	if st := w.store(k); st != nil {
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
		Advice: "Ask `why` about that object.",
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
		c.Advice = "It does not exist. Create it, or find the program that should create it."
	}
	c.Evidence["seen"] = seen
	c.Message += ": " + seen
	if others := c.Evidence["conditions"]; others != "" {
		c.Message += "; " + others
	}
	return []why.Cause{c}
}

// seen describes the state of the object that is relevant to the wait, including its conditions, and adds it to
// evidence.
func (w *objectWait[T, PT]) seen(obj PT, evidence map[string]string) string {
	version := obj.GetResourceVersion()
	evidence["version"] = version
	all, err := condition.Of(obj)
	if err != nil {
		all = nil
	}
	text := "the condition does not hold at version " + version
	if at := obj.GetDeletionTimestamp(); at != nil {
		text = "it is being deleted"
		if f := obj.GetFinalizers(); len(f) > 0 {
			evidence["finalizers"] = strings.Join(f, ", ")
			text += ", blocked by " + evidence["finalizers"]
		}
	} else if w.gone {
		return "it exists and is not being deleted"
	} else if w.condition != "" {
		text = "it has no such condition"
		if i := slices.IndexFunc(all, func(c metav1.Condition) bool { return c.Type == w.condition }); i >= 0 {
			text = strings.Join([]string{string(all[i].Status), all[i].Reason, all[i].Message}, ", ")
			all = slices.Delete(all, i, i+1)
		}
	}
	if text := condition.Format(all); text != "" {
		evidence["conditions"] = text
	}
	return text
}
