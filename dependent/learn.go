package dependent

import (
	"encoding/json"
	"log/slog"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
)

// learn remembers the applied object and the values that the API server stored. manager is the field manager.
func (r *remembered) learn(o *op, manager string, now time.Time) error {
	var head struct {
		Metadata struct {
			UID             types.UID                   `json:"uid"`
			ResourceVersion string                      `json:"resourceVersion"`
			ManagedFields   []metav1.ManagedFieldsEntry `json:"managedFields"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(o.answer, &head); err != nil {
		return err
	}
	// Decode and encode as for later reads: a Go type encodes some values differently than the API server stores them.
	is := o.state.fresh()
	if err := json.Unmarshal(o.answer, is); err != nil {
		return err
	}
	has, err := content(is)
	if err != nil {
		return err
	}
	fields := fieldsOf(head.Metadata.ManagedFields, manager)
	if fields == "" {
		fields = "{}"
	}
	want, err := o.want.content()
	if err != nil {
		return err
	}
	sum, err := sumOwned(fields, has, want)
	if err != nil {
		return err
	}
	c := &child{
		uid: head.Metadata.UID, want: o.want.sum, fields: unique.Make(fields), has: sum,
		seen: head.Metadata.ResourceVersion, applied: now,
	}
	if before := r.children[o.at]; before != nil && before.uid == c.uid {
		c.since = before.since
		if o.drift {
			c.again = 1
			if now.Sub(before.applied) < contentionWindow {
				c.again = before.again + 1
			}
		}
	}
	r.children[o.at] = c
	return nil
}

// logChange logs a successful change of a child; the controller logs failures. known is the entry before the change.
func logChange(log *slog.Logger, primary client.Key, o *op, known *child) {
	if o.err != nil || o.verb != verbDelete && o.verb != verbApply {
		return
	}
	what := "child deleted"
	switch {
	case o.replaced:
		what = "child deleted to be recreated"
	case o.verb == verbDelete:
	case o.answer == nil:
		return
	case o.drift:
		what = "child corrected: another writer had changed it"
	case o.want.is == nil:
		what = "child created"
	case known != nil:
		what = "child changed"
	default:
		what = "child applied to learn its owned fields"
	}
	log.Info(what, "key", primary, "node", o.state.name, "kind", o.state.kind.Kind,
		"child", o.want.key)
}
