package client

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/store"
)

// Create creates obj. With a generated name, obj has it afterwards.
func (c *Client) Create(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.create(ctx, "", obj, opts)
}

// Update replaces the object by obj, which must be whole: one from the cache is refused with ErrPruned. With a
// resourceVersion it conflicts with later changes, without one it overwrites them.
func (c *Client) Update(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.update(ctx, "", obj, opts)
}

// Patch changes the object that obj names. The answer goes into obj.
func (c *Client) Patch(ctx context.Context, obj Object, patch Patch, opts ...WriteOption) error {
	return c.patch(ctx, "", obj, patch, opts)
}

// Apply is a server-side apply of the fields of obj by the client's field owner: fields that it applied before and that
// obj does not have are removed. An apply equal to the last one is not sent while the cache still shows what it applied.
func (c *Client) Apply(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.apply(ctx, "", obj, opts)
}

// Delete deletes the object that obj names. obj stays as it is. If the answer is lost, the delete is repeated for the incarnation that
// the cache showed, or else that obj is by its uid: another object that has its name by then stays. Where neither is known, it does not.
func (c *Client) Delete(ctx context.Context, obj Object, opts ...WriteOption) error {
	return c.delete(ctx, "", obj, opts)
}

// writing is one write in the making.
type writing struct {
	c      *Client
	op     string
	k      *kind
	key    Key
	sub    string
	o      writeOptions
	strict bool   // it must carry the version that it was computed from
	answer Object // is filled with the answer
	req    call.Request

	version string // that the request carries
	sent    []byte // body of a merge patch or an apply, for the ledger

	after func(*call.Answer) // runs once the answer lies over the store
}

func (c *Client) begin(ctx context.Context, verb call.Verb, subresource string, obj Object, opts []WriteOption) (*writing, error) {
	k, err := c.kinds.of(obj)
	if err != nil {
		return nil, err
	}
	w := &writing{c: c, op: string(verb), k: k, key: KeyOf(obj), sub: subresource, o: c.resolveWrite(opts), answer: obj}
	if subresource != "" {
		w.op += " " + subresource + " of"
	}
	w.strict = w.o.version || requireVersion(ctx)
	w.req = call.Request{
		Verb: verb, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: w.key.Namespace, Name: w.key.Name,
		Subresource: subresource, Query: w.o.query(verb), Idempotent: w.o.idempotent,
	}
	unnamed := w.key.Name == "" && (verb != call.VerbCreate || obj.GetGenerateName() == "")
	if unnamed || k.namespaced && w.key.Namespace == "" {
		return nil, w.fail(ErrNoName)
	}
	if !k.namespaced && w.key.Namespace != "" {
		w.key.Namespace, w.req.Namespace = "", ""
	}
	if verb != call.VerbDelete { // which only reads the object
		if r := w.known(); r != nil && r.Shares(obj) {
			return nil, w.fail(ErrShared)
		}
	}
	return w, nil
}

func (w *writing) fail(err error) error { return w.k.fail(w.op, w.key, err) }

// known is what the cache shows of the object; nil if it shows nothing, or is not to be believed.
func (w *writing) known() *store.Record {
	st := w.c.watched(w.k)
	if st == nil || st.Overdue(w.key) {
		return nil
	}
	r, _ := st.Get(w.key)
	return r
}

// lock says which version the write must carry: the one that it was computed from, where it is known.
func (w *writing) lock(version string) (string, error) {
	if version == "" && (w.strict || w.unordered()) {
		if r := w.known(); r != nil {
			version = r.Version()
		}
	}
	if version == "" && w.strict {
		return "", w.fail(ErrNoVersion)
	}
	return version, nil
}

// unordered says whether the versions of the kind cannot be ordered, so that every write must be locked.
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
	if w.o.body != nil {
		body, w.answer = w.o.body, w.o.body
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
	if w.o.body != nil {
		body, w.answer = w.o.body, w.o.body
	}
	if w.version, err = w.lock(body.GetResourceVersion()); err != nil {
		return err
	}
	want, err := content(body)
	if err != nil {
		return w.fail(err)
	}
	if w.o.body == nil {
		r := w.known()
		if r != nil && !w.o.always && sameVersion(w.version, r) && w.unchanged(r, want) {
			return fill(w.k, r, obj)
		}
		if r != nil && subresource == "" && r.Version() == obj.GetResourceVersion() && r.UID() == obj.GetUID() &&
			len(obj.GetManagedFields()) == 0 && !w.k.unmanaged.Load() {
			return w.fail(fmt.Errorf("%w: use Modify, Patch or Apply, or read it with Live", ErrPruned))
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

func sameVersion(version string, r *store.Record) bool {
	return version == "" || version == r.Version()
}

// unchanged says whether an update would make of the object what it is. What a subresource other than the status makes of it is not known.
func (w *writing) unchanged(r *store.Record, want map[string]any) bool {
	if w.sub != "" && w.sub != "status" {
		return false
	}
	// Through the Go type, as the wanted object came: the two then lack the same fields.
	have := reflect.New(reflect.TypeOf(w.answer).Elem()).Interface().(Object)
	if fill(w.k, r, have) != nil {
		return false
	}
	is, err := content(have)
	if err != nil {
		return false
	}
	if w.sub != "" {
		return reflect.DeepEqual(is[w.sub], want[w.sub])
	}
	d := difference(is, want)
	dropServerFields(d)
	return len(d) == 0
}

func (c *Client) patch(ctx context.Context, subresource string, obj Object, p Patch, opts []WriteOption) error {
	w, err := c.begin(ctx, call.VerbPatch, subresource, obj, opts)
	if err != nil {
		return err
	}
	if w.o.body != nil {
		w.answer = w.o.body
	}
	data, version, err := p.bytes(obj)
	if err != nil {
		return w.fail(err)
	}
	if !w.o.always {
		var shown []byte
		r := w.known()
		if r != nil && w.o.body == nil && (subresource == "" || subresource == "status") {
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
			return c.Live().Get(ctx, w.key, obj) // what the server would have answered
		}
	}
	return w.sendPatch(ctx, p.typ, data, version)
}

// sendPatch sends a patch that was computed from a version.
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

// overtaken makes a conflict of the 422 by which a server refuses a JSON patch that is bound to a version, if the object has another
// one now. Else the patch itself is wrong, and the error stays.
func (w *writing) overtaken(ctx context.Context, refused error) error {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(w.k.gvk)
	if err := w.c.Live().Get(ctx, w.key, now); err != nil || now.ResourceVersion == w.version {
		return refused
	}
	conflict := apierrors.NewConflict(w.k.gvr.GroupResource(), w.key.Name,
		fmt.Errorf("the patch is bound to version %s, the object has %s", w.version, now.ResourceVersion))
	return w.fail(fmt.Errorf("%w: %w", conflict, refused))
}

func (c *Client) apply(ctx context.Context, subresource string, obj Object, opts []WriteOption) error {
	w, err := c.begin(ctx, call.VerbApply, subresource, obj, opts)
	if err != nil {
		return err
	}
	body := obj
	if w.o.body != nil {
		body, w.answer = w.o.body, w.o.body
	}
	want, err := content(body)
	if err != nil {
		return w.fail(err)
	}
	meta := sub(want, "metadata")
	for _, field := range []string{"generation", "creationTimestamp", "selfLink"} {
		delete(meta, field)
	}
	if s, ok := want["status"].(map[string]any); ok && len(s) == 0 {
		delete(want, "status") // Go types encode an empty one where nobody set anything
	}
	if subresource == "" || w.o.body == nil {
		want["kind"], want["apiVersion"] = w.k.gvk.Kind, w.k.gvk.GroupVersion().String()
	}
	version, _ := meta["resourceVersion"].(string)
	delete(meta, "resourceVersion")
	memo, data, err := w.memo(want)
	if err != nil {
		return w.fail(err)
	}
	r := w.known()
	if r != nil && !w.o.always && !w.o.dryRun && c.applied.holds(memo, r, want) {
		return fill(w.k, r, obj)
	}
	if w.strict || w.unordered() {
		// An object that the cache knows to be absent is created by the apply: there is no version to carry.
		if version != "" || r != nil || !w.absent() {
			if version, err = w.lock(version); err != nil {
				return err
			}
		}
	}
	if version != "" {
		meta["resourceVersion"] = version
		if data, err = json.Marshal(want); err != nil {
			return w.fail(err)
		}
	}
	w.version, w.req.Body, w.sent = version, data, data
	w.after = func(a *call.Answer) { c.applied.note(memo, a) }
	return w.send(ctx)
}

func (w *writing) absent() bool {
	st := w.c.watched(w.k)
	return st != nil && knows(st, w.key.Namespace)
}

func (w *writing) encoded(content map[string]any) ([]byte, error) {
	content["kind"], content["apiVersion"] = w.k.gvk.Kind, w.k.gvk.GroupVersion().String()
	return json.Marshal(content)
}

// send makes the request, and lays its answer over the stores before anything else.
func (w *writing) send(ctx context.Context) error {
	if err := fence(ctx); err != nil {
		return w.fail(err)
	}
	flight := w.takeOff(ctx)
	a, err := call.Do(ctx, w.c.call, w.req, *w.o.policy)
	if err != nil {
		flight.fail()
		return err
	}
	behind := flight.land(ctx, a)
	if len(a.Raw) > 0 && !w.answeredByStatus(a) {
		if err := into(w.k, a, w.answer); err != nil {
			return w.fail(err)
		}
		w.seen(a)
	}
	if w.after != nil && !w.o.dryRun {
		w.after(a)
	}
	return behind
}

// answeredByStatus says whether a subresource was answered with a mere Status, as an eviction is: there is nothing in it.
func (w *writing) answeredByStatus(a *call.Answer) bool {
	var head struct{ Kind string }
	return w.sub != "" && w.sub != "status" && json.Unmarshal(a.Raw, &head) == nil && head.Kind == "Status"
}

// seen learns from an answer whether the server keeps managedFields of the kind.
func (w *writing) seen(a *call.Answer) {
	if obj, ok := w.answer.(metav1.Object); ok && (w.sub == "" || w.sub == "status") && !a.Recovered {
		w.k.unmanaged.Store(len(obj.GetManagedFields()) == 0)
	}
}
