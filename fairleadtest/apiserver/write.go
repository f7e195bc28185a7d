package apiserver

import (
	"context"
	"encoding/base64"
	stderrors "errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

var (
	// errRaced means that the object changed between reading and storing it.
	errRaced = stderrors.New("the object changed meanwhile")

	errVersionOfNew = stderrors.New("resourceVersion should not be set on objects to be created")
	errTooLarge     = stderrors.New("etcdserver: request is too large")
)

func (x *exchange) create() error {
	o, err := x.createOptions()
	if err != nil {
		return err
	}
	obj, err := x.decodeObject(o.strict)
	if err != nil {
		return err
	}
	if err := x.checkIdentity(obj); err != nil {
		return err
	}
	obj.SetUID("")
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	x.singleOwners(obj)
	if err := x.admitCreate(obj.GetName()); err != nil {
		return err
	}
	obj = x.s.apply.update(x.table, "", nil, obj, o.manager)
	generated := obj.GetName() == "" && obj.GetGenerateName() != ""
	for {
		if generated {
			obj.SetName(x.s.generateName(obj.GetGenerateName()))
		}
		if obj.GetResourceVersion() != "" && obj.GetName() != "" {
			return errVersionOfNew
		}
		stored, err := x.s.insert(x.r.Context(), x.table, obj.DeepCopy(), o.dryRun)
		if generated && errors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return err
		}
		return x.answerObject(http.StatusCreated, stored)
	}
}

// generateName appends five characters, never the same ones twice, to a prefix cut to the available length.
func (s *Server) generateName(prefix string) string {
	const letters, room = "bcdfghjklmnpqrstvwxz2456789", 63 - 5
	n := (s.opts.Names + s.names.Add(1)) * 7919 // a prime, so consecutive names look different
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return prefix[:min(len(prefix), room)] + string(suffix)
}

// insert stores a new object. It takes ownership of obj.
func (s *Server) insert(ctx context.Context, t *table, obj *unstructured.Unstructured, dryRun bool) (*object, error) {
	content, err := normalize(t, obj.Object)
	if err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	obj = &unstructured.Unstructured{Object: content}
	obj.SetUID(s.newUID())
	obj.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	obj.SetResourceVersion("")
	if !t.res.noGeneration {
		obj.SetGeneration(1)
	}
	if t.res.has("status") {
		take(obj.Object, t.empty().Object, "status")
	}
	if err := s.check(ctx, t, obj, nil, ""); err != nil {
		return nil, err
	}
	key := objectKey(obj.GetNamespace(), obj.GetName())
	if dryRun {
		if s.store.get(t, key) == nil {
			return newObject(t, 0, obj.Object), nil
		}
	} else if o := s.store.commit(t, key, watch.Added, nil, s.builder(t, obj)); o != nil {
		return o, nil
	}
	return nil, errors.NewAlreadyExists(t.res.GVR().GroupResource(), obj.GetName())
}

// foldStringData moves the write-only stringData of a Secret into data.
func foldStringData(content map[string]any) {
	plain, ok := content["stringData"].(map[string]any)
	if !ok {
		return
	}
	data, _ := content["data"].(map[string]any)
	if data == nil {
		data = map[string]any{}
	}
	for k, v := range plain {
		if s, ok := v.(string); ok {
			data[k] = base64.StdEncoding.EncodeToString([]byte(s))
		}
	}
	content["data"] = data
	delete(content, "stringData")
}

func (s *Server) newUID() types.UID {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.uids++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", s.store.uids))
}

// builder returns the function that creates the stored object for its revision. It takes ownership of obj.
func (s *Server) builder(t *table, obj *unstructured.Unstructured) func(uint64) *object {
	return func(rev uint64) *object {
		obj.SetResourceVersion(s.store.version.format(rev))
		return newObject(t, rev, obj.Object).toStore()
	}
}

// check applies the rules of the kind, of all metadata, and of the user. old is nil for a create.
func (s *Server) check(ctx context.Context, t *table, obj, old *unstructured.Unstructured, subresource string) error {
	var before map[string]any
	if old != nil {
		before = old.Object
	}
	rules := t.rules()
	if rules.prepare != nil && subresource == "" {
		rules.prepare(obj.Object, before)
	}
	errs := t.validateMeta(obj, old)
	if t.custom != nil {
		if prepare := t.custom.version.Prepare; prepare != nil && subresource == "" {
			prepare(obj.Object, before)
		}
		errs = append(errs, t.custom.version.Validate(ctx, obj.Object, before, subresource == "status")...)
	}
	if rules.validate != nil {
		errs = append(errs, rules.validate(obj.Object, before)...)
	}
	if len(errs) > 0 {
		return errors.NewInvalid(obj.GroupVersionKind().GroupKind(), obj.GetName(), errs)
	}
	if size(obj.Object) > maxStored {
		return errTooLarge
	}
	if t.res.Validate == nil {
		return nil
	}
	err := t.res.Validate(ctx, obj.DeepCopy(), old)
	var api errors.APIStatus
	switch {
	case err == nil:
		return nil
	case stderrors.As(err, &api):
		return err
	}
	status := failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
		fmt.Sprintf("%s %q is invalid: %v", t.res.Kind, obj.GetName(), err))
	status.Details = &metav1.StatusDetails{Group: t.res.Group, Kind: t.res.Kind, Name: obj.GetName()}
	return &errors.StatusError{ErrStatus: status}
}

// size returns the approximate length of the JSON of a value.
func size(v any) int {
	n := 2
	switch v := v.(type) {
	case string:
		n += len(v)
	case map[string]any:
		for k, e := range v {
			n += len(k) + 4 + size(e)
		}
	case []any:
		for _, e := range v {
			n += 1 + size(e)
		}
	}
	return n
}

func (x *exchange) update() error {
	o, err := x.updateOptions()
	if err != nil {
		return err
	}
	obj, err := x.decodeObject(o.strict)
	if err != nil {
		return err
	}
	if err := x.checkIdentity(obj); err != nil {
		return err
	}
	x.singleOwners(obj)
	m := modification{
		uid: string(obj.GetUID()), creates: x.table.rules().createOnUpdate && x.req.Subresource == "",
		dryRun: o.dryRun,
	}
	m.next = func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return x.s.apply.update(x.table, x.req.Subresource, live, obj.DeepCopy(), o.manager), nil
	}
	return x.modify(m)
}

// modification is a write to an existing or possibly missing object.
type modification struct {
	uid     string // required uid, if not empty
	creates bool   // create the object if it is missing
	dryRun  bool

	// next returns the next state for the live one. For a missing object, live contains only the kind. next may be
	// called again.
	next func(live *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

// modify applies a modification to the object of the request and answers with the result. It retries if the object
// changes concurrently.
func (x *exchange) modify(c modification) error {
	for {
		o, code, err := x.tryModify(c)
		if stderrors.Is(err, errRaced) || c.creates && errors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return err
		}
		return x.answerObject(code, o)
	}
}

func (x *exchange) tryModify(c modification) (*object, int, error) {
	t, gr := x.table, x.groupResource()
	base := x.s.store.get(t, objectKey(x.req.Namespace, x.req.Name))
	if base == nil && !c.creates {
		return nil, 0, errors.NewNotFound(gr, x.req.Name)
	}
	if c.uid != "" && (base == nil || base.uid != c.uid) {
		return nil, 0, errors.NewConflict(gr, x.req.Name,
			fmt.Errorf("precondition failed: the UID in the precondition is %s", c.uid))
	}
	if base == nil {
		next, err := c.next(t.empty())
		if err == nil {
			err = x.admitCreate(x.req.Name)
		}
		if err != nil {
			return nil, 0, err
		}
		o, err := x.s.insert(x.r.Context(), t, next, c.dryRun)
		return o, http.StatusCreated, err
	}
	live, err := base.copy()
	if err != nil {
		return nil, 0, err
	}
	next, err := c.next(live.DeepCopy())
	if err != nil {
		return nil, 0, err
	}
	o, err := x.replace(base, live, next, c.dryRun)
	return o, http.StatusOK, err
}

// replace stores next in place of base, whose content is live. It takes ownership of next. It returns errRaced if base
// is no longer the stored object.
func (x *exchange) replace(base *object, live, next *unstructured.Unstructured, dryRun bool) (*object, error) {
	t, gr := x.table, x.groupResource()
	switch v := next.GetResourceVersion(); {
	case v == "" || v == "0":
		if t.rules().conditional {
			gk := t.res.GVK().GroupKind()
			gk.Kind = t.res.Resource
			return nil, errors.NewInvalid(gk, base.name,
				field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
		}
	case v != base.version:
		if _, ok := x.s.store.version.parse(v); !ok {
			return nil, fmt.Errorf("%q is not a version of this server", v)
		}
		return nil, errors.NewConflict(gr, base.name,
			stderrors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	content, err := normalize(t, next.Object)
	if err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	next = t.inherit(live, &unstructured.Unstructured{Object: content}, x.req.Subresource)
	next.SetResourceVersion(base.version)
	if err := x.s.check(x.r.Context(), t, next, live, x.req.Subresource); err != nil {
		return nil, err
	}
	if grace := live.GetDeletionGracePeriodSeconds(); live.GetDeletionTimestamp() != nil &&
		len(next.GetFinalizers()) == 0 &&
		(grace == nil || *grace == 0) && !keptBySpec(t, next) {
		// The log gets the previous state; the answer contains the requested one.
		if _, _, err := x.s.erase(base, dryRun); err != nil {
			return nil, err
		}
		return newObject(t, base.rev, next.Object), nil
	}
	if sameContent(live, next) {
		return base, nil
	}
	return x.s.persist(base, next, dryRun)
}

// persist stores a checked object.
func (s *Server) persist(base *object, next *unstructured.Unstructured, dryRun bool) (*object, error) {
	build := s.builder(base.table, next)
	if dryRun {
		return build(base.rev), nil
	}
	if o := s.store.commit(base.table, base.key(), watch.Modified, base, build); o != nil {
		return o, nil
	}
	return nil, errRaced
}

// sameContent reports whether two states are equal, except for the times in managedFields.
func sameContent(a, b *unstructured.Unstructured) bool {
	return equalExcept(a.Object, b.Object, "metadata", "managedFields", "time")
}

// equalExcept reports whether two JSON values are equal, except for the field at path. Elements of a list have no part
// in the path. An absent list equals an empty one if it is on the path. It is called for each write and copies nothing.
func equalExcept(a, b any, path ...string) bool {
	switch x := a.(type) {
	case []any:
		y, isList := b.([]any)
		return (isList || b == nil) && slices.EqualFunc(x, y, func(a, b any) bool { return equalExcept(a, b, path...) })
	case map[string]any:
		y, isMap := b.(map[string]any)
		if !isMap {
			return false
		}
		onPath := len(path) > 1
		for k, v := range x {
			w, ok := y[k]
			switch {
			case k != path[0]:
				if !ok || !reflect.DeepEqual(v, w) {
					return false
				}
			case onPath && !equalExcept(v, w, path[1:]...):
				return false
			}
		}
		for k, w := range y {
			if _, ok := x[k]; !ok && (k != path[0] || onPath && !equalExcept(w, nil, path[1:]...)) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// inherit restores fields that a client cannot change, applies the rule of the subresource, and increments the
// generation. It takes ownership of next.
func (t *table) inherit(live, next *unstructured.Unstructured, subresource string) *unstructured.Unstructured {
	switch {
	case subresource == "finalize":
		take(next.Object, live.Object, "status")
	case subresource == "status":
		next = t.inheritAllButStatus(live, next)
	case t.res.has("status"):
		take(next.Object, live.Object, "status")
	}
	if next.GetUID() == "" {
		next.SetUID(live.GetUID())
	}
	next.SetCreationTimestamp(live.GetCreationTimestamp())
	if at := live.GetDeletionTimestamp(); at != nil {
		next.SetDeletionTimestamp(at)
	}
	if grace := live.GetDeletionGracePeriodSeconds(); grace != nil && next.GetDeletionGracePeriodSeconds() == nil {
		next.SetDeletionGracePeriodSeconds(grace)
	}
	next.SetGeneration(live.GetGeneration())
	if (subresource == "" || subresource == "scale") && !t.res.noGeneration && t.specChanged(live.Object, next.Object) {
		next.SetGeneration(live.GetGeneration() + 1)
	}
	return next
}

// inheritAllButStatus keeps live except its status and, for a built-in kind, its metadata. Metadata fields that the
// status subresource ignores stay as in live.
func (t *table) inheritAllButStatus(live, next *unstructured.Unstructured) *unstructured.Unstructured {
	out := live.DeepCopy()
	take(out.Object, next.Object, "status")
	managed := next.GetManagedFields()
	if t.typed {
		meta, _ := next.Object["metadata"].(map[string]any)
		before, _ := live.Object["metadata"].(map[string]any)
		for _, path := range t.rules().status {
			take(meta, before, path[1])
		}
		out.Object["metadata"] = meta
	}
	out.SetManagedFields(managed)
	return out
}

// take copies a field from another object, or removes it if it is absent there.
func take(into, from map[string]any, field string) {
	if v, ok := from[field]; ok {
		into[field] = v
	} else {
		delete(into, field)
	}
}

// specChanged compares all fields except metadata and status, and for a Deployment also the annotations. The status of
// a custom resource counts if it has no subresource.
func (t *table) specChanged(a, b map[string]any) bool {
	spec := func(m map[string]any) map[string]any {
		out := map[string]any{}
		for k, v := range m {
			if k != "metadata" && (k != "status" || t.custom != nil && !t.res.has("status")) {
				out[k] = v
			}
		}
		if t.res.Kind == "Deployment" {
			out["annotations"], _, _ = unstructured.NestedMap(m, "metadata", "annotations") // none if it cannot be read
		}
		return out
	}
	return !reflect.DeepEqual(spec(a), spec(b))
}
