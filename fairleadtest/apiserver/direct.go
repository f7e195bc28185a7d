package apiserver

import (
	"bytes"
	"context"
	stderrors "errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Put stores obj as it is, without a request: it is created or replaced, status included, and validation is not asked.
// Missing kind and apiVersion are found by the Go type; uid, creationTimestamp and generation are kept as given, or
// else as stored, or else assigned. A resourceVersion in obj is ignored. It returns what was stored, the caller's to keep.
func (s *Server) Put(obj runtime.Object) (*unstructured.Unstructured, error) {
	content, err := toContent(obj)
	if err != nil {
		return nil, fmt.Errorf("cannot put the object: %w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	t, err := s.tableOf(u.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if u.GetName() == "" || t.res.Namespaced != (u.GetNamespace() != "") {
		return nil, fmt.Errorf("cannot put the object: name %q and namespace %q do not fit a %s", u.GetName(), u.GetNamespace(), t.res.Kind)
	}
	if content, err = normalize(t, content); err != nil {
		return nil, fmt.Errorf("cannot put the object: %w", err)
	}
	u.Object = content
	for {
		base := s.store.get(t, objectKey(u.GetNamespace(), u.GetName()))
		next, typ := u.DeepCopy(), watch.Added
		var live *unstructured.Unstructured
		if base != nil {
			typ = watch.Modified
			if live, err = base.copy(); err != nil {
				return nil, err
			}
		}
		s.complete(t, next, live)
		if o := s.store.commit(t, objectKey(u.GetNamespace(), u.GetName()), typ, base, s.builder(t, next)); o != nil {
			return o.copy()
		}
	}
}

// complete fills in the metadata that a server assigns.
func (s *Server) complete(t *table, next, live *unstructured.Unstructured) {
	if live == nil {
		live = &unstructured.Unstructured{Object: map[string]any{}}
		live.SetUID(s.newUID())
		live.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
		if !t.res.NoGeneration {
			live.SetGeneration(1)
		}
	} else if !t.res.NoGeneration && specChanged(live.Object, next.Object) {
		live.SetGeneration(live.GetGeneration() + 1)
	}
	if next.GetUID() == "" {
		next.SetUID(live.GetUID())
	}
	if at := next.GetCreationTimestamp(); at.IsZero() {
		next.SetCreationTimestamp(live.GetCreationTimestamp())
	}
	if next.GetGeneration() < live.GetGeneration() {
		next.SetGeneration(live.GetGeneration())
	}
}

func (s *Server) tableOf(gvk schema.GroupVersionKind) (*table, error) {
	for _, r := range s.store.served() {
		if r.GVK() == gvk {
			if t := s.store.table(r.GVR()); t != nil {
				return t, nil
			}
		}
	}
	return nil, fmt.Errorf("cannot find a resource of kind %s: it is not served", gvk)
}

func (s *Server) tableFor(gvr schema.GroupVersionResource) (*table, error) {
	if t := s.store.table(gvr); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("cannot find resource %s: it is not served", gvr)
}

// Object returns a copy of the stored object; the error is a NotFound if there is none. Namespace is empty for objects
// without one.
func (s *Server) Object(gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	t, err := s.tableFor(gvr)
	if err != nil {
		return nil, err
	}
	o := s.store.get(t, objectKey(namespace, name))
	if o == nil {
		return nil, errors.NewNotFound(gvr.GroupResource(), name)
	}
	return o.copy()
}

// Objects returns copies of all stored objects of a resource, ordered by namespace and name.
func (s *Server) Objects(gvr schema.GroupVersionResource) ([]*unstructured.Unstructured, error) {
	t, err := s.tableFor(gvr)
	if err != nil {
		return nil, err
	}
	objects, _, _ := s.store.snapshotAt(t, 0)
	var out []*unstructured.Unstructured
	for _, o := range objects {
		u, err := o.copy()
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// Remove deletes an object at once, whatever finalizers it has. The error is a NotFound if there is none.
func (s *Server) Remove(gvr schema.GroupVersionResource, namespace, name string) error {
	t, err := s.tableFor(gvr)
	if err != nil {
		return err
	}
	for {
		base := s.store.get(t, objectKey(namespace, name))
		if base == nil {
			return errors.NewNotFound(gvr.GroupResource(), name)
		}
		_, _, err := s.erase(t, base, func(rev uint64) *object { return base.withVersion(s.store.version, rev) }, false)
		if !stderrors.Is(err, errRaced) {
			return err
		}
	}
}

// Delete deletes an object as a request would: finalizers and grace periods are honoured.
func (s *Server) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	t, err := s.tableFor(gvr)
	if err != nil {
		return err
	}
	_, _, err = s.remove(ctx, t, namespace, name, opts, false)
	return err
}

// Encoded is an object as bytes, for Preload and Publish.
type Encoded struct {
	Namespace, Name, UID string
	Labels               map[string]string
	// JSON is the whole object; metadata must agree with the fields above and with the version given. Cheapest is JSON that
	// begins with kind and apiVersion, in this order and without spaces, as servers write it.
	JSON []byte
	// Proto is the protobuf message without envelope; nil: it is made from JSON when first asked for.
	Proto []byte
}

func (t *table) encoded(e Encoded, rev uint64, version string) (*object, error) {
	bare, ok := bytes.CutPrefix(e.JSON, []byte(t.prefix))
	o := &object{table: t, rev: rev, namespace: e.Namespace, name: e.Name, uid: e.UID, version: version, labels: e.Labels, proto: e.Proto}
	if ok {
		o.bare = append([]byte{'{'}, bare...)
		return o, nil
	}
	o.bare = e.JSON
	content, err := o.read()
	if err != nil {
		return nil, err
	}
	o.bare, o.content = nil, nil
	o.content = content
	return o, nil
}

// Preload stores objects that are encoded already: made for benchmarks of clients with 100,000 objects and more. encode
// is called once for each i below n, with the version that the object must carry. Objects that exist are replaced.
// Watches see one event for each.
func (s *Server) Preload(gvr schema.GroupVersionResource, n int, encode func(i int, version string) Encoded) error {
	t, err := s.tableFor(gvr)
	if err != nil {
		return err
	}
	// The bytes depend on the version, which only commit knows; so the revisions are reserved first.
	s.store.mu.Lock()
	first := s.store.rev + 1
	s.store.rev += uint64(n)
	s.store.mu.Unlock()
	revisions := make([]*revision, 0, n)
	for i := range n {
		rev := first + uint64(i)
		version := s.store.version.format(rev)
		o, err := t.encoded(encode(i, version), rev, version)
		if err != nil {
			return fmt.Errorf("cannot preload object %d: %w", i, err)
		}
		revisions = append(revisions, &revision{rev: rev, typ: watch.Added, cur: o})
	}
	s.store.load(t, slices.Values(revisions))
	return nil
}

// load adds revisions in bulk: the keys are sorted once.
func (st *store) load(t *table, revisions iter.Seq[*revision]) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for r := range revisions {
		key := r.cur.key()
		if old := t.live[key]; old != nil {
			r.prev, r.typ = old, watch.Modified
		} else {
			t.keys = append(t.keys, key)
		}
		t.live[key] = r.cur
		t.log = append(t.log, r)
	}
	slices.Sort(t.keys)
	slices.SortStableFunc(t.log, func(a, b *revision) int {
		switch {
		case a.rev < b.rev:
			return -1
		case a.rev > b.rev:
			return 1
		}
		return 0
	})
	t.snaps = nil
	t.wake()
}

// Publish creates or replaces one object that is encoded already; encode is given the version that it must carry. It is the
// cheapest write there is, for benchmarks of the way from a write to a handler. encode must not use the server.
func (s *Server) Publish(gvr schema.GroupVersionResource, encode func(version string) Encoded) error {
	t, err := s.tableFor(gvr)
	if err != nil {
		return err
	}
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	rev := st.rev + 1
	version := st.version.format(rev)
	o, err := t.encoded(encode(version), rev, version)
	if err != nil {
		return fmt.Errorf("cannot publish the object: %w", err)
	}
	r := &revision{rev: rev, typ: watch.Added, cur: o, prev: t.live[o.key()]}
	if r.prev != nil {
		r.typ = watch.Modified
	}
	st.rev = rev
	t.append(r, o.key())
	return nil
}

// Poison replaces the bytes of a stored object by what damage makes of its JSON, in a new revision: lists and watches send
// it as it is. What cannot be encoded as protobuf any more is sent there as a message that does not decode. The object
// keeps its key, uid and labels. damage must not use the server.
func (s *Server) Poison(gvr schema.GroupVersionResource, namespace, name string, damage func(json []byte) []byte) error {
	t, err := s.tableFor(gvr)
	if err != nil {
		return err
	}
	for {
		base := s.store.get(t, objectKey(namespace, name))
		if base == nil {
			return errors.NewNotFound(gvr.GroupResource(), name)
		}
		var whole []byte
		o := s.store.commit(t, base.key(), watch.Modified, base, func(rev uint64) *object {
			next := base.withVersion(s.store.version, rev)
			if whole, err = (encoding{}).appendObject(nil, next); err != nil {
				whole = base.bare
			}
			out := &object{table: t, rev: rev, namespace: base.namespace, name: base.name, uid: base.uid, version: s.store.version.format(rev),
				labels: base.labels, poisoned: true}
			if meta, err := next.metaProtoLocked(); err == nil {
				out.metaProto = meta
			}
			if partial, err := next.partialJSON(); err == nil {
				out.metaJSON = partial
			}
			whole = damage(whole)
			out.bare = []byte("{" + string(bytes.TrimPrefix(whole, []byte(t.prefix))))
			return out
		})
		if o != nil {
			return nil
		}
	}
}
