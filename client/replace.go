package client

import (
	"context"
	"errors"

	"github.com/fairlead-io/fairlead/call"
)

// Replace writes obj, whole, in the place of exactly the version that it carries. It is the write for those who make
// many: it costs one request and no look at what the cache shows, nothing is compared, and of the answer only the
// header is read. Reads show the answer at once.
//
// obj has to be the caller's own and, but for what is to be changed, what the server has in that version: it was read
// or written before, in a Go type that knows all of its fields, which is not checked here as [Client.Update] does. It
// is sent though it would change nothing. Only what the cache is told to drop is looked at: DroppedError.
//
// Afterwards obj has the resourceVersion and the generation of the answer, and no managedFields: the next write
// without any leaves those of the server as they are. All else stays as it was sent. Where the server may have made
// something else of it, by defaults or by dropping fields that it does not know, obj does not show that. Where the
// answer was lost and a read has shown that the write was made, obj is what was read: others may have written since.
//
// After an error obj is as it was. Errors: obj has no version; a conflict (apierrors.IsConflict), after which nothing is tried
// again; call.ErrOutcomeUnknown where the write may have been made; call.ErrTooLarge; ErrFenced.
func (c *Client) Replace(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.replace(ctx, "", obj, opts)
}

// Replace is [Client.Replace] for the subresource. Of a status nothing else in obj may have been changed: the server
// does not take it.
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
	if w.o.body != nil {
		return w.fail(errors.New("a Replace has no Body: it writes the object itself"))
	}
	if err := w.incomplete(obj, func() (map[string]any, error) { return content(obj) }); err != nil {
		return err
	}
	w.req.Object, w.byHeader = obj, true
	return w.send(ctx)
}

// header takes of an answer what the server has added to what was sent. It returns false where that is not all that
// it may have changed.
func (w *writing) header(a *call.Answer, read *reply) bool {
	if !w.byHeader || a.Recovered || w.o.dryRun || !read.readable() {
		return false
	}
	h := read.head
	if len(h.ResourceVersion) == 0 || string(h.UID) != string(w.answer.GetUID()) ||
		w.extra.Kept != nil && !w.extra.Kept(a.Raw) {
		return false
	}
	w.answer.SetResourceVersion(string(h.ResourceVersion))
	w.answer.SetGeneration(h.Generation)
	w.answer.SetManagedFields(nil)
	return true
}
