package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client/internal/content"
	"github.com/fairlead-io/fairlead/client/internal/pending"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

// writer makes writes and adds their answers to the stores.
type writer struct {
	reader
	own *writeState
}

// writeState is the state that the writers of a client and of the clients bound from it share.
type writeState struct {
	pending    pending.Writes
	applied    applied
	fieldOwner string
	plain      url.Values // query of a write without options; read-only
}

// writing is a write in preparation.
type writing struct {
	writer
	cachedObject
	verb   string // for errors
	o      writeoption.Options
	strict bool   // the write must carry the version that it was computed from
	answer Object // receives the server's answer
	req    call.Request

	version string // resourceVersion that the request carries
	sent    []byte // body of a merge patch or an apply, for the ledger

	byHeader bool          // read only the header of the answer; see Replace
	head     source.Header // of the answer, once it has been read

	after func(*call.Answer) // called after the answer is in the store
}

func (wr writer) begin(
	ctx context.Context, verb call.Verb, subresource string, obj Object, opts []WriteOption,
) (*writing, error) {
	k, err := wr.kinds.of(obj)
	if err != nil {
		return nil, err
	}
	w := &writing{
		writer: wr, verb: string(verb), o: wr.resolve(opts), answer: obj,
		cachedObject: cachedObject{stores: wr.stores, k: k, key: KeyOf(obj), seen: [2]metav1.Object{obj}},
	}
	w.strict = w.o.SameVersion || w.server.requireVersion(ctx)
	w.req = call.Request{
		Verb: verb, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: w.key.Namespace, Name: w.key.Name,
		Subresource: subresource, Query: w.own.query(&w.o, verb), ConflictsExpected: w.o.ConflictsExpected,
	}
	unnamed := w.key.Name == "" && (verb != call.VerbCreate || obj.GetGenerateName() == "")
	if unnamed || k.namespaced && w.key.Namespace == "" {
		return nil, w.fail(errNoName)
	}
	if !k.namespaced && w.key.Namespace != "" {
		w.key.Namespace, w.req.Namespace = "", ""
	}
	if verb != call.VerbDelete { // a delete only reads the object
		if r := w.anyContent(); r != nil && r.Shares(obj) {
			return nil, w.fail(ErrShared)
		}
	}
	return w, nil
}

// resolve applies the options of a write to the defaults of the client.
func (wr writer) resolve(opts []WriteOption) writeoption.Options {
	o := writeoption.Options{Owner: wr.own.fieldOwner}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.Policy == nil {
		o.Policy = wr.server.policy
	}
	return o
}

func (w *writing) fail(err error) error { return w.k.fail(w.op(), w.key, err) }

// op returns the operation and the subresource, for errors.
func (w *writing) op() string {
	if w.req.Subresource == "" {
		return w.verb
	}
	return w.verb + " " + w.req.Subresource + " of"
}

// lock returns the version that the write must carry: version, or else that of the cached object if the write must be
// locked.
func (w *writing) lock(version string) (string, error) {
	if version == "" && (w.strict || w.unordered()) {
		if r := w.anyContent(); r != nil {
			version = r.Version()
		}
	}
	if version == "" && w.strict {
		return "", w.fail(errNoVersion)
	}
	return version, nil
}

func (wr writer) create(ctx context.Context, subresource string, obj Object, opts []WriteOption) error {
	w, err := wr.begin(ctx, call.VerbCreate, subresource, obj, opts)
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

func (wr writer) update(ctx context.Context, subresource string, obj Object, opts []WriteOption) error {
	w, err := wr.begin(ctx, call.VerbUpdate, subresource, obj, opts)
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
	want, err := content.Of(body)
	if err != nil {
		return w.fail(err)
	}
	if w.o.Body == nil {
		u := update{obj: obj, want: want, version: w.version, sub: subresource, always: w.o.Always}
		unchanged, err := u.compare(&w.cachedObject, w.kinds.scheme)
		switch {
		case unchanged:
			return err
		case err != nil:
			return w.fail(err)
		}
		if err := w.checkDropped(obj, subresource, func() (map[string]any, error) { return want, nil }); err != nil {
			return w.fail(err)
		}
	}
	if w.version != "" && body.GetResourceVersion() == "" {
		content.Member(want, "metadata")["resourceVersion"] = w.version
		w.key = KeyOf(obj)
		if w.req.Body, err = w.encoded(want); err != nil {
			return w.fail(err)
		}
		return w.send(ctx)
	}
	w.req.Object = body
	return w.send(ctx)
}

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
	whole := func() (map[string]any, error) { return content.Of(obj) }
	if err := w.checkDropped(obj, subresource, whole); err != nil {
		return w.fail(err)
	}
	w.req.Object, w.byHeader = obj, true
	return w.send(ctx)
}

func (wr writer) patch(ctx context.Context, subresource string, obj Object, p Patch, opts []WriteOption) error {
	w, err := wr.begin(ctx, call.VerbPatch, subresource, obj, opts)
	if err != nil {
		return err
	}
	if w.o.Body != nil {
		w.answer = w.o.Body
	}
	if p.from != nil {
		w.seen[1] = p.from
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
		if content.ChangesNothing(p.typ, data, shown) {
			if r != nil {
				return fill(w.k, r, obj)
			}
			if p.from != nil {
				return nil
			}
			return wr.live(ctx, w.key, obj) // as a request would have returned
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
		if data, err = content.AtVersion(t, data, w.version); err != nil {
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
	if version != "" || !w.provesAbsence() || w.anyContent() != nil {
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
	return now, w.live(ctx, w.key, now)
}

func (w *writing) encoded(body map[string]any) ([]byte, error) {
	body["kind"], body["apiVersion"] = w.k.gvk.Kind, w.k.gvk.GroupVersion().String()
	return json.Marshal(body)
}

// send makes the request. It stores the answer in the stores before it fills the caller's object.
func (w *writing) send(ctx context.Context) error {
	if err := w.server.fence(ctx); err != nil {
		return w.fail(err)
	}
	announced := w.announce(ctx)
	a, err := w.server.write(ctx, w.req, *w.o.Policy)
	if err != nil {
		failed(ctx, announced, err)
		return err
	}
	if w.o.Answered != nil && len(a.Raw) > 0 {
		w.o.Answered(a.Raw)
	}
	answer := w.read(a)
	announced.Answered(ctx, answer)
	if err := w.fillAnswer(a, answer); err != nil {
		return w.fail(err)
	}
	if w.after != nil && !w.o.DryRun {
		w.after(a)
	}
	return nil
}

// fillAnswer sets the caller's object to the answer.
func (w *writing) fillAnswer(a *call.Answer, answer *pending.Answer) error {
	if len(a.Raw) == 0 {
		return nil
	}
	if w.byHeader && !a.Recovered && !w.o.DryRun && answer.Readable() && isHeaderOf(&w.head, w.answer) &&
		(w.o.Kept == nil || w.o.Kept(a.Raw)) {
		setHeader(w.answer, &w.head)
		return nil
	}
	if sub := w.req.Subresource; sub != "" && sub != "status" && answer.Status() {
		return nil
	}
	return into(w.k, a, w.answer)
}

// isHeaderOf reports whether a header is that of the same incarnation of an object, and has a version. Otherwise the
// whole answer must be decoded, because it may differ in other fields.
func isHeaderOf(h *source.Header, obj Object) bool {
	return len(h.ResourceVersion) > 0 && string(h.UID) == string(obj.GetUID())
}

// setHeader sets the fields of an answer's header in an object.
func setHeader(obj Object, h *source.Header) {
	obj.SetResourceVersion(string(h.ResourceVersion))
	obj.SetGeneration(h.Generation)
	obj.SetManagedFields(nil)
}

// announce announces the write to the stores.
func (w *writing) announce(ctx context.Context) *pending.Write {
	if w.o.DryRun {
		return w.own.pending.DryRun()
	}
	return w.own.pending.Begin(w.server.owner(ctx), pending.Target{
		Op: w.op(), Resource: w.k.gvr, Kind: w.k.gvk, Key: w.key, Subresource: w.req.Subresource, Version: w.version,
		Sent: w.sent, Create: w.req.Verb == call.VerbCreate && w.req.Subresource == "",
	})
}

// failed ends a write that returned an error.
func failed(ctx context.Context, w *pending.Write, err error) {
	if errors.Is(err, call.ErrOutcomeUnknown) {
		w.Lost(ctx)
		return
	}
	w.Refused()
}

func (w *writing) read(a *call.Answer) *pending.Answer { return pending.Read(a.Code, a.Raw, &w.head) }

// query returns the query parameters of a write, which are read-only. A delete has its options in the body.
func (ws *writeState) query(o *writeoption.Options, verb call.Verb) url.Values {
	switch {
	case verb == call.VerbDelete:
		return nil
	case !o.DryRun && !o.Force && o.Owner == ws.fieldOwner:
		return ws.plain
	}
	q := url.Values{}
	if o.DryRun {
		q.Set("dryRun", metav1.DryRunAll)
	}
	q.Set("fieldManager", strings.TrimSpace(o.Owner))
	if verb == call.VerbApply && o.Force {
		q.Set("force", "true")
	}
	return q
}
