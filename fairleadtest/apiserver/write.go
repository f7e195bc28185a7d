package apiserver

import (
	"context"
	"encoding/base64"
	stderrors "errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// errRaced says that the object changed between reading and storing it.
var errRaced = stderrors.New("the object changed meanwhile")

// decodeInto decodes the body of a create or update and checks that it belongs here.
func (x *exchange) decodeInto() (*unstructured.Unstructured, error) {
	content, err := decodeBody(x.r.Header.Get("Content-Type"), x.req.Body)
	if err != nil {
		return nil, err
	}
	if content == nil {
		return nil, errors.NewBadRequest("the body is empty")
	}
	obj := &unstructured.Unstructured{Object: content}
	return obj, x.checkIdentity(obj)
}

// checkIdentity compares kind, version, namespace and name with the path, and fills in what is missing.
func (x *exchange) checkIdentity(obj *unstructured.Unstructured) error {
	res := x.table.res
	if kind := obj.GetKind(); kind != "" && kind != res.Kind {
		return errors.NewBadRequest(fmt.Sprintf("the object is of kind %s, not %s", kind, res.Kind))
	}
	if v := obj.GetAPIVersion(); v != "" && v != res.apiVersion() {
		return errors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", v, res.apiVersion()))
	}
	if _, ok := obj.Object["metadata"]; ok {
		if _, ok := obj.Object["metadata"].(map[string]any); !ok {
			return errors.NewBadRequest("metadata is not an object")
		}
	}
	if res.Namespaced {
		if ns := obj.GetNamespace(); ns != "" && ns != x.req.Namespace {
			return errors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
		}
		obj.SetNamespace(x.req.Namespace)
	}
	if x.req.Name != "" {
		if name := obj.GetName(); name != "" && name != x.req.Name {
			return errors.NewBadRequest("the name of the object (" + name + ") does not match the name on the URL (" + x.req.Name + ")")
		}
		obj.SetName(x.req.Name)
	}
	return nil
}

func (x *exchange) dryRun() bool { return x.has("dryRun") }

func (x *exchange) create() error {
	if x.req.Name != "" {
		return errors.NewMethodNotSupported(x.groupResource(), "create")
	}
	obj, err := x.decodeInto()
	if err != nil {
		return err
	}
	if obj.GetResourceVersion() != "" {
		return errors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	generated := obj.GetName() == "" && obj.GetGenerateName() != ""
	for {
		if generated {
			obj.SetName(x.s.generateName(obj.GetGenerateName()))
		}
		stored, err := x.s.insert(x.r.Context(), x.table, obj.DeepCopy(), x.manager(), x.dryRun())
		if generated && errors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return err
		}
		return x.answerObject(http.StatusCreated, stored)
	}
}

// generateName appends five characters, never the same ones twice.
func (s *Server) generateName(prefix string) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	n := s.names.Add(1) * 7919 // a prime, so that neighbours look different
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return prefix + string(suffix)
}

// insert stores a new object. It owns obj.
func (s *Server) insert(ctx context.Context, t *table, obj *unstructured.Unstructured, manager string, dryRun bool) (*object, error) {
	res := t.res
	if obj.GetName() == "" {
		return nil, invalid(t, "", field.Required(field.NewPath("metadata", "name"), "name or generateName is required"))
	}
	content, err := normalize(t, obj.Object)
	if err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	obj.Object = content
	obj.SetUID(s.newUID())
	obj.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetGeneration(0)
	if !res.NoGeneration {
		obj.SetGeneration(1)
	}
	if res.has("status") {
		delete(obj.Object, "status")
	}
	prepareBuiltIn(t, obj.Object)
	if err := s.validate(ctx, t, obj, nil); err != nil {
		return nil, err
	}
	if len(obj.GetManagedFields()) > 0 && manager != "" {
		if obj, err = s.apply.update(t, "", nil, obj, manager); err != nil {
			return nil, err
		}
	}
	build := s.builder(t, obj)
	if dryRun {
		if s.store.get(t, objectKey(obj.GetNamespace(), obj.GetName())) == nil {
			return build(s.store.current()), nil
		}
	} else if o := s.store.commit(t, objectKey(obj.GetNamespace(), obj.GetName()), watch.Added, nil, build); o != nil {
		return o, nil
	}
	return nil, errors.NewAlreadyExists(res.GVR().GroupResource(), obj.GetName())
}

// prepareBuiltIn sets what the real server sets in the kinds where a test would miss it.
func prepareBuiltIn(t *table, content map[string]any) {
	switch t.res.GVK().String() {
	case "/v1, Kind=Pod":
		content["status"] = map[string]any{"phase": "Pending"}
	case "/v1, Kind=Namespace":
		content["status"] = map[string]any{"phase": "Active"}
	}
	foldStringData(t, content)
}

// foldStringData turns the write-only stringData of a Secret into data.
func foldStringData(t *table, content map[string]any) {
	if plain, ok := content["stringData"].(map[string]any); ok && t.res.Kind == "Secret" && t.res.Group == "" {
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
}

func (s *Server) newUID() types.UID {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.uids++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", s.store.uids))
}

// builder returns the function that makes the stored object once its revision is known. It owns obj.
func (s *Server) builder(t *table, obj *unstructured.Unstructured) func(uint64) *object {
	return func(rev uint64) *object {
		obj.SetResourceVersion(s.store.version.format(rev))
		return newObject(t, rev, obj.Object)
	}
}

func (s *Server) validate(ctx context.Context, t *table, obj, old *unstructured.Unstructured) error {
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
	return &errors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
		Reason: metav1.StatusReasonInvalid, Details: &metav1.StatusDetails{Group: t.res.Group, Kind: t.res.Kind, Name: obj.GetName()},
		Message: fmt.Sprintf("%s %q is invalid: %v", t.res.Kind, obj.GetName(), err),
	}}
}

func invalid(t *table, name string, errs ...*field.Error) error {
	return errors.NewInvalid(t.res.GVK().GroupKind(), name, errs)
}

func (x *exchange) update() error {
	obj, err := x.decodeInto()
	if err != nil {
		return err
	}
	stored, err := x.modify(x.manager(), func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		next := obj.DeepCopy()
		if next.GetResourceVersion() == "" && !x.table.typed {
			return nil, invalid(x.table, x.req.Name, field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"))
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	return x.answerObject(http.StatusOK, stored)
}

// modify changes the object of the request: fn is given the live state, which it may change, and returns the next one. If
// the object changes meanwhile it is asked again.
func (x *exchange) modify(manager string, fn func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*object, error) {
	for {
		base := x.s.store.get(x.table, objectKey(x.req.Namespace, x.req.Name))
		if base == nil {
			return nil, errors.NewNotFound(x.groupResource(), x.req.Name)
		}
		live, err := base.copy()
		if err != nil {
			return nil, err
		}
		next, err := fn(live.DeepCopy())
		if err != nil {
			return nil, err
		}
		o, err := x.s.replace(x.r.Context(), x.table, base, live, next, x.req.Subresource, manager, x.dryRun())
		if stderrors.Is(err, errRaced) {
			continue
		}
		return o, err
	}
}

// replace stores next in the place of base, whose content is live. It owns next, and returns errRaced when base is not the
// stored object any more.
func (s *Server) replace(ctx context.Context, t *table, base *object, live, next *unstructured.Unstructured, subresource, manager string, dryRun bool) (*object, error) {
	if v := next.GetResourceVersion(); v != "" && v != base.version {
		return nil, errors.NewConflict(t.res.GVR().GroupResource(), base.name,
			stderrors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if uid := next.GetUID(); uid != "" && string(uid) != base.uid {
		return nil, errors.NewConflict(t.res.GVR().GroupResource(), base.name,
			fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", uid, base.uid))
	}
	content, err := normalize(t, next.Object)
	if err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	foldStringData(t, content)
	next = inheritMeta(t, live, &unstructured.Unstructured{Object: content}, subresource)
	if err := s.validate(ctx, t, next, live); err != nil {
		return nil, err
	}
	if live.GetDeletionTimestamp() != nil {
		had := map[string]bool{}
		for _, f := range live.GetFinalizers() {
			had[f] = true
		}
		for _, f := range next.GetFinalizers() {
			if !had[f] {
				return nil, invalid(t, base.name, field.Forbidden(field.NewPath("metadata", "finalizers"),
					"no new finalizers can be added if the object is being deleted, found new finalizer "+f))
			}
		}
	}
	if manager != "" && (len(live.GetManagedFields()) > 0 || len(next.GetManagedFields()) > 0) {
		if next, err = s.apply.update(t, subresource, live, next, manager); err != nil {
			return nil, err
		}
	}
	next.SetResourceVersion(base.version)
	if sameContent(live, next) {
		return base, nil
	}
	return s.persist(t, base, next, dryRun)
}

// persist stores an object that is ready; one whose last finalizer is gone is deleted.
func (s *Server) persist(t *table, base *object, next *unstructured.Unstructured, dryRun bool) (*object, error) {
	typ := watch.Modified
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 && !keptBySpec(t, next) {
		if g := next.GetDeletionGracePeriodSeconds(); g == nil || *g == 0 {
			typ = watch.Deleted
		}
	}
	build := s.builder(t, next)
	if dryRun {
		return build(base.rev), nil
	}
	if o := s.store.commit(t, base.key(), typ, base, build); o != nil {
		return o, nil
	}
	return nil, errRaced
}

// sameContent compares two states but for the times in managedFields.
func sameContent(a, b *unstructured.Unstructured) bool {
	if reflect.DeepEqual(a.Object, b.Object) {
		return true
	}
	strip := func(u *unstructured.Unstructured) map[string]any {
		u = u.DeepCopy()
		entries := u.GetManagedFields()
		for i := range entries {
			entries[i].Time = nil
		}
		u.SetManagedFields(entries)
		return u.Object
	}
	return reflect.DeepEqual(strip(a), strip(b))
}

// inheritMeta keeps what a client cannot change, applies the rule of the status subresource, and counts generations.
func inheritMeta(t *table, live, next *unstructured.Unstructured, subresource string) *unstructured.Unstructured {
	switch {
	case subresource == "status":
		status, ok := next.Object["status"]
		managed := next.GetManagedFields()
		next = live.DeepCopy()
		if len(managed) > 0 {
			next.SetManagedFields(managed)
		}
		if ok {
			next.Object["status"] = status
		} else {
			delete(next.Object, "status")
		}
	case t.res.has("status"):
		if status, ok := live.Object["status"]; ok {
			next.Object["status"] = status
		} else {
			delete(next.Object, "status")
		}
	}
	next.SetUID(live.GetUID())
	next.SetCreationTimestamp(live.GetCreationTimestamp())
	next.SetDeletionTimestamp(live.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(live.GetDeletionGracePeriodSeconds())
	next.SetGeneration(live.GetGeneration())
	if next.GetManagedFields() == nil {
		next.SetManagedFields(live.GetManagedFields())
	}
	if !t.res.NoGeneration && specChanged(live.Object, next.Object) {
		next.SetGeneration(live.GetGeneration() + 1)
	}
	return next
}

// specChanged compares everything but metadata and status.
func specChanged(a, b map[string]any) bool {
	spec := func(m map[string]any) map[string]any {
		out := map[string]any{}
		for k, v := range m {
			if k != "metadata" && k != "status" {
				out[k] = v
			}
		}
		return out
	}
	return !reflect.DeepEqual(spec(a), spec(b))
}

// manager names who writes, for managedFields.
func (x *exchange) manager() string {
	if m := x.query.Get("fieldManager"); m != "" {
		return m
	}
	agent := x.r.UserAgent()
	for i := range len(agent) {
		if agent[i] == '/' {
			return agent[:i]
		}
	}
	if agent == "" {
		return "unknown"
	}
	return agent
}
