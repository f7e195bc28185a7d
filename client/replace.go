package client

import (
	"context"
	"errors"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client/internal/content"
	"github.com/fairlead-io/fairlead/client/internal/pending"
)

func (wr writer) replace(ctx context.Context, subresource string, obj Object, opts []WriteOption) error {
	w, err := wr.begin(ctx, call.VerbUpdate, subresource, obj, opts)
	if err != nil {
		return err
	}
	if w.version = obj.GetResourceVersion(); w.version == "" {
		return w.fail(errNoVersion)
	}
	if w.o.Body != nil {
		return w.fail(errors.New("a Replace has no Body: it writes the object itself"))
	}
	if err := w.checkDropped(obj, func() (map[string]any, error) { return content.Of(obj) }); err != nil {
		return err
	}
	w.req.Object, w.byHeader = obj, true
	return w.send(ctx)
}

// takeHeader sets the fields of the answer's header in the object. It returns false if the whole answer must be decoded,
// because it may differ in other fields.
func (w *writing) takeHeader(a *call.Answer, answer *pending.Answer) bool {
	if !w.byHeader || a.Recovered || w.o.DryRun || !answer.Readable() {
		return false
	}
	h := &w.head
	if len(h.ResourceVersion) == 0 || string(h.UID) != string(w.answer.GetUID()) ||
		w.o.Kept != nil && !w.o.Kept(a.Raw) {
		return false
	}
	w.answer.SetResourceVersion(string(h.ResourceVersion))
	w.answer.SetGeneration(h.Generation)
	w.answer.SetManagedFields(nil)
	return true
}
