package apiserver

import (
	"context"
	stderrors "errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/internal/custom"
)

// CRDs are CustomResourceDefinitions for Options.CRDs. The function crd.New returns them.
type CRDs = custom.Definitions

var definitionResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// cleanUp is the finalizer of a definition whose objects are being deleted.
const cleanUp = "customresourcecleanup.apiextensions.k8s.io"

// definitions serves the resources of the stored CustomResourceDefinitions. The lock of the store guards all fields
// except store, table and rules.
type definitions struct {
	store *store
	table *table
	rules *CRDs

	compiled map[string]*custom.Definition // by UID and generation; the initial ones, to not look for them
	served   map[string]*installed         // by name of the definition
}

// installed are the tables of a definition.
type installed struct {
	definition *custom.Definition
	tables     []*table
}

// customTable has the rules of a table that a definition describes, or of the definitions themselves.
type customTable struct {
	version    *custom.Version
	definition string // its name; empty for the definitions themselves
	stored     *table // the table in whose form objects are stored
}

// serveDefinitions turns on that definitions are served.
func (s *Server) serveDefinitions(rules *CRDs) {
	st := s.store
	if st.tables[definitionResource] == nil {
		st.register(Resource{
			Group: definitionResource.Group, Version: definitionResource.Version, Resource: definitionResource.Resource,
			Kind: "CustomResourceDefinition", Subresources: []string{"status"}, ShortNames: []string{"crd", "crds"},
		})
	}
	t := st.tables[definitionResource]
	t.custom = &customTable{version: rules.Kind, stored: t}
	st.crds = &definitions{
		store: st, table: t, rules: rules, compiled: map[string]*custom.Definition{}, served: map[string]*installed{},
	}
	now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	for _, d := range rules.Initial {
		obj := &unstructured.Unstructured{Object: shallow(d.Content, "metadata")}
		obj.SetUID(s.newUID())
		obj.SetCreationTimestamp(now)
		st.crds.compiled[string(obj.GetUID())] = d.Definition
		st.commit(t, objectKey("", obj.GetName()), watch.Added, nil, s.builder(t, obj))
	}
}

// shallow copies an object and one of its fields. Everything else is shared.
func shallow(content map[string]any, field string) map[string]any {
	out := make(map[string]any, len(content)+1)
	for k, v := range content {
		out[k] = v
	}
	inner, _ := content[field].(map[string]any)
	copied := make(map[string]any, len(inner)+4)
	for k, v := range inner {
		copied[k] = v
	}
	out[field] = copied
	return out
}

// has reports whether t is the table of definitions that are served.
func (d *definitions) has(t *table) bool { return d != nil && d.table == t }

// written installs, replaces or removes the tables of a definition after a write to it. The caller holds the lock.
func (d *definitions) written(t *table, r *revision) {
	if t.rows != d.table.rows {
		return
	}
	if r.typ == watch.Deleted {
		d.remove(r.cur.name)
		return
	}
	content, err := r.cur.read()
	if err != nil {
		return
	}
	definition := d.compiled[r.cur.uid]
	if obj := (unstructured.Unstructured{Object: content}); definition == nil || obj.GetGeneration() > 1 {
		if definition, err = d.rules.Find(content); err != nil {
			return // of an object that was put without validation
		}
	}
	d.install(r.cur.name, definition)
	d.accept(r.cur, content)
}

// install serves the resources of a definition. Objects that are stored remain.
func (d *definitions) install(name string, definition *custom.Definition) {
	old := d.served[name]
	if old != nil && old.definition == definition {
		return
	}
	objects := newRows()
	if old != nil {
		objects = old.tables[0].rows
		d.withdraw(old)
	}
	objects.mixed = objects.mixed || old != nil || len(definition.Versions) > 1
	next := &installed{definition: definition}
	var stored *table
	for _, v := range definition.Versions {
		t := newTable(resourceOf(definition, v), objects)
		t.served, t.custom = v.Served, &customTable{version: v, definition: name}
		if v.Stored {
			stored = t
		}
		next.tables = append(next.tables, t)
	}
	for _, t := range next.tables {
		t.custom.stored = stored
		d.store.tables[t.res.GVR()] = t
	}
	d.served[name] = next
	d.store.sorted.Store(nil)
}

func resourceOf(d *custom.Definition, v *custom.Version) Resource {
	r := Resource{
		Group: d.Group, Version: v.Name, Resource: d.Resource, Kind: d.Kind, Namespaced: d.Namespaced,
		Singular: d.Singular, ShortNames: d.ShortNames, categories: d.Categories, Fields: v.Fields,
	}
	if v.Status {
		r.Subresources = append(r.Subresources, "status")
	}
	if v.Scale != nil {
		r.Subresources = append(r.Subresources, "scale")
	}
	return r
}

// withdraw stops serving the tables of a definition. Their watches end.
func (d *definitions) withdraw(old *installed) {
	for _, t := range old.tables {
		t.served = false
		if d.store.tables[t.res.GVR()] == t {
			delete(d.store.tables, t.res.GVR())
		}
	}
	d.store.sorted.Store(nil)
	old.tables[0].wake()
}

func (d *definitions) remove(name string) {
	if old := d.served[name]; old != nil {
		d.withdraw(old)
		delete(d.served, name)
	}
}

// restore serves what is stored after a rollback. The caller holds the lock.
func (d *definitions) restore() {
	for name := range d.served {
		if d.table.live[objectKey("", name)] == nil {
			d.remove(name)
		}
	}
	for _, o := range d.table.live {
		content, err := o.read()
		if err != nil {
			continue
		}
		if definition, err := d.rules.Find(content); err == nil {
			d.install(o.name, definition)
		}
	}
}

// accept writes into the status of a definition that its names are accepted and its resources are served.
func (d *definitions) accept(o *object, content map[string]any) {
	spec, _ := content["spec"].(map[string]any)
	status, _ := content["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	established := slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == "Established" && m["status"] == "True"
	})
	names, _ := status["acceptedNames"].(map[string]any)
	if established && reflect.DeepEqual(names, spec["names"]) {
		return
	}
	next := &unstructured.Unstructured{Object: shallow(shallow(content, "metadata"), "status")}
	status = next.Object["status"].(map[string]any)
	status["acceptedNames"] = spec["names"]
	if !established {
		now := time.Now().UTC().Format(time.RFC3339)
		condition := func(kind, reason, message string) map[string]any {
			return map[string]any{
				"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message,
			}
		}
		status["conditions"] = append(slices.Clone(conditions),
			condition("NamesAccepted", "NoConflicts", "no conflicts found"),
			condition("Established", "InitialNamesAccepted", "the initial names have been accepted"))
	}
	d.store.write(d.table, o.key(), watch.Modified, o, func(rev uint64) *object {
		next.SetResourceVersion(d.store.version.format(rev))
		return newObject(d.table, rev, next.Object)
	})
}

// complete removes what is not in the schema, and sets defaults, of an object in the form of the table.
func (c *customTable) complete(content map[string]any) error {
	if _, err := c.version.Coerce(content); err != nil {
		return err
	}
	c.version.Default(content)
	return nil
}

// decoded completes an object from a request. doubts are fields that are not in the schema.
func (c *customTable) decoded(content map[string]any) (doubts []error, err error) {
	unknown, err := c.version.Coerce(content)
	for _, path := range unknown {
		doubts = append(doubts, fmt.Errorf("unknown field %q", path))
	}
	c.version.Default(content)
	return doubts, err
}

// stored returns the object that the store has, of which o may be another form.
func (o *object) stored() *object {
	if o == nil || o.origin == nil {
		return o
	}
	return o.origin
}

// as returns the object in the form of another version of its resource, or of another schema. It returns nil for nil.
func (o *object) as(t *table) *object {
	if o == nil || o.table == t || t.custom == nil || t.rows != o.table.rows {
		return o
	}
	if o = o.stored(); o.table == t {
		return o
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if form := o.forms[t]; form != nil {
		return form
	}
	form, err := o.convertLocked(t)
	if err != nil {
		return o // undecodable bytes are sent as they are
	}
	form.origin = o
	if o.forms == nil {
		o.forms = map[*table]*object{}
	}
	o.forms[t] = form
	return form
}

// convertLocked is the conversion "None" with the rules of the real server: an object gets the defaults of the stored
// version, and loses the fields that the other version does not have.
func (o *object) convertLocked(t *table) (*object, error) {
	content, err := o.readLocked()
	if err != nil {
		return nil, err
	}
	u := (&unstructured.Unstructured{Object: content}).DeepCopy()
	u.SetAPIVersion(t.res.apiVersion())
	if stored := t.custom.stored; o.table != stored {
		if err := stored.custom.complete(u.Object); err != nil {
			return nil, err
		}
	}
	if _, err := t.custom.version.Coerce(u.Object); err != nil {
		return nil, err
	}
	return newObject(t, o.rev, u.Object), nil
}

// toStore returns a new object in the form in which it is stored.
func (o *object) toStore() *object {
	c := o.table.custom
	if c == nil || c.stored == o.table {
		return o
	}
	if out, err := o.convertLocked(c.stored); err == nil {
		return out
	}
	return o
}

// asThis returns objects in the form of this table.
func (t *table) asThis(objects []*object) []*object {
	if !t.mixed {
		return objects
	}
	out := make([]*object, len(objects))
	for i, o := range objects {
		out[i] = o.as(t)
	}
	return out
}

// customGroups returns the groups that have definitions; nil means none.
func (st *store) customGroups() map[string]bool {
	st.mu.RLock()
	defer st.mu.RUnlock()
	if st.crds == nil {
		return nil
	}
	out := map[string]bool{}
	for _, i := range st.crds.served {
		out[i.definition.Group] = true
	}
	return out
}

// terminateDefinition marks a definition as terminating and deletes its objects.
func (s *Server) terminateDefinition(base *object, next *unstructured.Unstructured, dryRun bool) (*object, error) {
	now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	next.SetDeletionTimestamp(&now)
	if f := next.GetFinalizers(); !slices.Contains(f, cleanUp) {
		next.SetFinalizers(append(f, cleanUp))
	}
	conditions, _, _ := unstructured.NestedSlice(next.Object, "status", "conditions") // none if it cannot be read
	conditions = append(conditions, map[string]any{
		"type": "Terminating", "status": "True", "lastTransitionTime": now.Format(time.RFC3339),
		"reason":  "InstanceDeletionPending",
		"message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	})
	// It fails if status is not an object.
	_ = unstructured.SetNestedSlice(next.Object, conditions, "status", "conditions")
	marked, err := s.persist(base, next, dryRun)
	if err != nil || dryRun {
		return marked, err
	}
	for _, o := range s.objectsOf(base.name) {
		// The request has been answered with success already on a real server, which tries again.
		_, _, _ = s.remove(context.Background(), o.table, o.namespace, o.name, metav1.DeleteOptions{})
	}
	s.finishDefinition(base.name)
	return marked, nil
}

// objectsOf returns the stored objects of a definition.
func (s *Server) objectsOf(definition string) []*object {
	s.store.mu.RLock()
	i := s.store.crds.served[definition]
	s.store.mu.RUnlock()
	if i == nil {
		return nil
	}
	objects, _, _ := s.store.snapshotAt(i.tables[0].custom.stored, 0)
	return objects
}

// definitionTerminates reports whether a definition is under deletion.
func (s *Server) definitionTerminates(name string) bool {
	if name == "" {
		return false
	}
	o := s.store.get(s.store.crds.table, objectKey("", name))
	if o == nil {
		return false
	}
	content, err := o.read()
	obj := unstructured.Unstructured{Object: content}
	return err == nil && obj.GetDeletionTimestamp() != nil
}

// finishDefinition removes the finalizer of a definition under deletion that has no objects left.
func (s *Server) finishDefinition(name string) {
	for s.definitionTerminates(name) && len(s.objectsOf(name)) == 0 {
		base := s.store.get(s.store.crds.table, objectKey("", name))
		if base == nil {
			return
		}
		next, err := base.copy()
		if err != nil {
			return
		}
		next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == cleanUp }))
		if len(next.GetFinalizers()) == 0 {
			_, _, err = s.erase(base, false)
		} else {
			_, err = s.persist(base, next, false)
		}
		if !stderrors.Is(err, errRaced) {
			return
		}
	}
}
