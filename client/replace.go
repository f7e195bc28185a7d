package client

import (
	"context"
	"errors"

	"github.com/fairlead-io/fairlead/call"
)

// Replace replaces the object by obj if it still has the resourceVersion of obj. It is for callers that make many
// writes. It sends one request, does not compare obj with the cache, and decodes only the header of the answer. Reads
// see the write at once.
//
// The caller must own obj. Apart from the intended change, obj must equal the server's object in that version. It must
// come from a read or write in a Go type that knows all of its fields; Replace does not check that, unlike
// [Client.Update]. Replace sends obj even if nothing changed. It returns a DroppedError if obj may lack fields that the
// cache drops.
//
// Afterwards obj has the resourceVersion and the generation of the answer, and no managedFields, so the next write
// keeps those of the server. All other fields are as sent: obj does not show defaults that the server sets or unknown
// fields that it drops. If the answer was lost and a read has shown that the write was made, obj is the object that was
// read. It may then include later changes of other clients.
//
// After an error obj is unchanged. Replace returns an error if obj has no resourceVersion, a conflict
// (apierrors.IsConflict) without retry, call.ErrOutcomeUnknown if the write may have been made, call.ErrTooLarge, or
// ErrFenced.
func (c *Client) Replace(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.replace(ctx, "", obj, opts)
}

// Replace is [Client.Replace] for the subresource. For the status, no other field of obj may have changed, because the
// server ignores it.
func (s *SubResource) Replace(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.replace(ctx, s.name, obj, opts)
}

func (c *Client) replace(ctx context.Context, subresource string, obj Object, opts []WriteOption) error {
	w, err := c.begin(ctx, call.VerbUpdate, subresource, obj, opts)
	if err != nil {
		return err
	}
	if w.version = obj.GetResourceVersion(); w.version == "" {
		return w.fail(errNoVersion)
	}
	if w.o.Body != nil {
		return w.fail(errors.New("a Replace has no Body: it writes the object itself"))
	}
	if err := w.incomplete(obj, func() (map[string]any, error) { return content(obj) }); err != nil {
		return err
	}
	w.req.Object, w.byHeader = obj, true
	return w.send(ctx)
}

// header sets the fields of the answer's header in the object. It returns false if the whole answer must be decoded,
// because it may differ in other fields.
func (w *writing) header(a *call.Answer, read *reply) bool {
	if !w.byHeader || a.Recovered || w.o.DryRun || !read.readable() {
		return false
	}
	h := read.head
	if len(h.ResourceVersion) == 0 || string(h.UID) != string(w.answer.GetUID()) ||
		w.o.Kept != nil && !w.o.Kept(a.Raw) {
		return false
	}
	w.answer.SetResourceVersion(string(h.ResourceVersion))
	w.answer.SetGeneration(h.Generation)
	w.answer.SetManagedFields(nil)
	return true
}
