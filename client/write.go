package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

// Create creates obj. If the server generates the name, obj has it afterwards.
func (c *Client) Create(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.create(ctx, "", obj, opts)
}

// Update replaces the object by obj. With a resourceVersion it conflicts with later changes; without one it overwrites
// them. The server removes fields that the Go type of obj does not know. If the cache shows such fields, Update sends
// nothing and returns an error that matches ErrPruned and names one of them. If obj lacks fields that the cache drops,
// Update returns a DroppedError. Neither check is possible for objects that are not watched. Objects from the cache
// lack managedFields, and the server keeps those. Update does not send an update that would change nothing.
func (c *Client) Update(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.update(ctx, "", obj, opts)
}

// Patch changes the object that obj names and stores the answer in obj.
func (c *Client) Patch(ctx context.Context, obj Object, patch Patch, opts ...WriteOption) error {
	return c.patch(ctx, "", obj, patch, opts)
}

// Delete deletes the object that obj names. It does not change obj. If the answer is lost, Delete repeats the request
// for the uid in the cache, or else for that of obj. It therefore does not delete a new object of the same name. If
// neither is known, the repeated request deletes any object of that name.
func (c *Client) Delete(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.delete(ctx, "", obj, opts)
}

// writing is a write in preparation.
type writing struct {
	c      *Client
	verb   string // for errors
	k      *kind
	key    Key
	sub    string
	o      writeoption.Options
	strict bool   // the write must carry the version that it was computed from
	answer Object // receives the server's answer
	req    call.Request

	shown   []metav1.Object // states of the object that the caller has seen, for their uid and version
	showing [2]metav1.Object
	version string // resourceVersion that the request carries
	sent    []byte // body of a merge patch or an apply, for the ledger

	byHeader bool          // read only the header of the answer; see Replace
	head     source.Header // of the answer, once it has been read

	after func(*call.Answer) // called after the answer is in the store
}

func (c *Client) begin(
	ctx context.Context, verb call.Verb, subresource string, obj Object, opts []WriteOption,
) (*writing, error) {
	k, err := c.kindOf(obj)
	if err != nil {
		return nil, err
	}
	w := &writing{
		c: c, verb: string(verb), k: k, key: KeyOf(obj), sub: subresource, o: c.resolveWrite(opts), answer: obj,
	}
	w.shown = append(w.showing[:0], obj)
	w.strict = w.o.SameVersion || c.requireVersion(ctx)
	w.req = call.Request{
		Verb: verb, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: w.key.Namespace, Name: w.key.Name,
		Subresource: subresource, Query: c.query(&w.o, verb), ConflictsExpected: w.o.ConflictsExpected,
	}
	unnamed := w.key.Name == "" && (verb != call.VerbCreate || obj.GetGenerateName() == "")
	if unnamed || k.namespaced && w.key.Namespace == "" {
		return nil, w.fail(errNoName)
	}
	if !k.namespaced && w.key.Namespace != "" {
		w.key.Namespace, w.req.Namespace = "", ""
	}
	if verb != call.VerbDelete { // a delete only reads the object
		if r := w.known(); r != nil && r.Shares(obj) {
			return nil, w.fail(ErrShared)
		}
	}
	return w, nil
}

func (w *writing) fail(err error) error { return w.k.fail(w.op(), w.key, err) }

// op returns the operation and the subresource, for errors.
func (w *writing) op() string {
	if w.sub == "" {
		return w.verb
	}
	return w.verb + " " + w.sub + " of"
}

// cached returns the cached object, or its metadata if metadata is true. It returns nil if the cache has none or if
// reads must ask the server.
func (w *writing) cached(metadata bool) *cache.Record {
	r, _ := w.c.holds(w.k, w.key, metadata)
	return r
}

// known returns the cached object, perhaps only its metadata. It returns nil if that may be older than a state that the
// caller has seen.
func (w *writing) known() *cache.Record { return w.believed(w.cached(true)) }

// whole is known for callers that need more than the metadata.
func (w *writing) whole() *cache.Record { return w.believed(w.cached(false)) }

func (w *writing) believed(r *cache.Record) *cache.Record {
	if r != nil && w.believes(r) {
		return r
	}
	return nil
}

func (w *writing) believes(r *cache.Record) bool {
	return !slices.ContainsFunc(w.shown, func(o metav1.Object) bool {
		return outdated(r, o.GetUID(), o.GetResourceVersion())
	})
}

// outdated reports whether a record may be older than a state with uid and version: it is of another incarnation, or
// its version is not known to be the same or newer. An empty uid or version is unknown.
func outdated(r *cache.Record, uid types.UID, version string) bool {
	if version == "" {
		return uid != "" && uid != r.UID()
	}
	if version == r.Version() {
		return false
	}
	order, ok := resourceversion.Compare(r.Version(), version)
	return !ok || order < 0
}

// lock returns the version that the write must carry: version, or else that of the cached object if the write must be
// locked.
func (w *writing) lock(version string) (string, error) {
	if version == "" && (w.strict || w.unordered()) {
		if r := w.known(); r != nil {
			version = r.Version()
		}
	}
	if version == "" && w.strict {
		return "", w.fail(errNoVersion)
	}
	return version, nil
}

// unordered reports whether versions of the kind cannot be ordered. Then every write must be locked.
func (w *writing) unordered() bool {
	st := w.c.watched(w.k)
	return st != nil && unordered(st)
}

func (c *Client) create(ctx context.Context, subresource string, obj Object, opts []WriteOption) error {
	w, err := c.begin(ctx, call.VerbCreate, subresource, obj, opts)
	if err != nil {
		return err
	}
	body := obj
	if w.o.Body != nil {
		body, w.answer = w.o.Body, w.o.Body
	}
	w.req.Object = body
	return w.send(ctx)
}

func (c *Client) update(ctx context.Context, subresource string, obj Object, opts []WriteOption) error {
	w, err := c.begin(ctx, call.VerbUpdate, subresource, obj, opts)
	if err != nil {
		return err
	}
	body := obj
	if w.o.Body != nil {
		body, w.answer = w.o.Body, w.o.Body
	}
	if w.version, err = w.lock(body.GetResourceVersion()); err != nil {
		return err
	}
	want, err := content(body)
	if err != nil {
		return w.fail(err)
	}
	if w.o.Body == nil {
		done, err := w.replacing(obj, want)
		if err == nil && !done {
			err = w.incomplete(obj, func() (map[string]any, error) { return want, nil })
		}
		if done || err != nil {
			return err
		}
	}
	if w.version != "" && body.GetResourceVersion() == "" {
		sub(want, "metadata")["resourceVersion"] = w.version
		w.key = KeyOf(obj)
		if w.req.Body, err = w.encoded(want); err != nil {
			return w.fail(err)
		}
		return w.send(ctx)
	}
	w.req.Object = body
	return w.send(ctx)
}

func (c *Client) patch(ctx context.Context, subresource string, obj Object, p Patch, opts []WriteOption) error {
	w, err := c.begin(ctx, call.VerbPatch, subresource, obj, opts)
	if err != nil {
		return err
	}
	if w.o.Body != nil {
		w.answer = w.o.Body
	}
	if p.from != nil {
		w.shown = append(w.shown, p.from)
	}
	data, version, err := p.bytes(obj)
	if err != nil {
		return w.fail(err)
	}
	if !w.o.Always {
		var shown []byte
		r := w.whole()
		if r != nil && len(r.Dropped()) == 0 && w.o.Body == nil && (subresource == "" || subresource == "status") {
			if shown, err = r.AppendJSON(nil); err != nil {
				shown = nil
			}
		}
		if changesNothing(p.typ, data, shown) {
			if r != nil {
				return fill(w.k, r, obj)
			}
			if p.from != nil {
				return nil
			}
			return c.Live().Get(ctx, w.key, obj) // as a request would have returned
		}
	}
	return w.sendPatch(ctx, p.typ, data, version)
}

// sendPatch sends a patch. version is the one that the patch was computed from.
func (w *writing) sendPatch(ctx context.Context, t types.PatchType, data []byte, version string) error {
	var err error
	if w.strict || w.unordered() {
		if w.version, err = w.lock(version); err != nil {
			return err
		}
	}
	if w.version != "" && t != types.ApplyPatchType {
		if data, err = locked(t, data, w.version); err != nil {
			return w.fail(err)
		}
	}
	w.req.PatchType, w.req.Body = t, data
	if t == types.MergePatchType {
		w.sent = data
	}
	err = w.send(ctx)
	if t == types.JSONPatchType && w.version != "" && apierrors.IsInvalid(err) {
		return w.overtaken(ctx, err)
	}
	return err
}

// overtaken converts the 422 for a JSON patch that is bound to a version into a conflict, if the object has another
// version now. Otherwise the patch itself is invalid, and overtaken returns refused.
func (w *writing) overtaken(ctx context.Context, refused error) error {
	now, err := w.now(ctx)
	if err != nil || now.ResourceVersion == w.version {
		return refused
	}
	conflict := apierrors.NewConflict(w.k.gvr.GroupResource(), w.key.Name,
		fmt.Errorf("the patch is bound to version %s, the object has %s", w.version, now.ResourceVersion))
	return w.fail(fmt.Errorf("%w: %w", conflict, refused))
}

// lockApply is lock for an apply. An apply creates an absent object, so it then carries no version. If the cache does
// not have the object, another client may have created it, so lockApply asks the server.
func (w *writing) lockApply(ctx context.Context, version string) (string, error) {
	if w.o.Absent && version == "" {
		return "", nil
	}
	st := w.c.watchedIn(w.k, w.key.Namespace)
	if version != "" || st == nil || !knows(st, w.key.Namespace) || w.known() != nil {
		return w.lock(version)
	}
	now, err := w.now(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	}
	return now.ResourceVersion, nil
}

// now returns the metadata of the object on the server.
func (w *writing) now(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(w.k.gvk)
	return now, w.c.Live().Get(ctx, w.key, now)
}

func (w *writing) encoded(content map[string]any) ([]byte, error) {
	content["kind"], content["apiVersion"] = w.k.gvk.Kind, w.k.gvk.GroupVersion().String()
	return json.Marshal(content)
}

// send makes the request. It stores the answer in the stores before it fills the caller's object.
func (w *writing) send(ctx context.Context) error {
	if err := w.c.fence(ctx); err != nil {
		return w.fail(err)
	}
	flight := w.takeOff(ctx)
	a, err := call.Do(ctx, w.c.call, w.req, w.c.fenced(ctx, *w.o.Policy))
	if err != nil {
		flight.failed(ctx, err)
		return err
	}
	if w.o.Answered != nil && len(a.Raw) > 0 {
		w.o.Answered(a.Raw)
	}
	read := w.read(a)
	flight.land(ctx, read)
	if len(a.Raw) > 0 && !w.header(a, read) && (w.sub == "" || w.sub == "status" || !read.status()) {
		if err := into(w.k, a, w.answer); err != nil {
			return w.fail(err)
		}
	}
	if w.after != nil && !w.o.DryRun {
		w.after(a)
	}
	return nil
}

// takeOff announces the write to the stores.
func (w *writing) takeOff(ctx context.Context) *flight {
	if w.o.DryRun {
		return &flight{layer: &w.c.layer, dry: true}
	}
	return w.c.layer.takeOff(w.c.owner(ctx), target{
		op: w.op(), resource: w.k.gvr, kind: w.k.gvk, key: w.key, sub: w.sub, version: w.version, sent: w.sent,
		create: w.req.Verb == call.VerbCreate && w.sub == "",
	})
}

// failed ends a write that returned an error.
func (f *flight) failed(ctx context.Context, err error) {
	if errors.Is(err, call.ErrOutcomeUnknown) {
		f.lost(ctx)
		return
	}
	f.fail()
}

func (w *writing) read(a *call.Answer) *reply { return read(a.Code, a.Raw, &w.head) }
