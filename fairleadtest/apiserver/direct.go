package apiserver

import (
	"context"
	stderrors "errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Put stores obj without a request and without validation, including its status. It creates or replaces the object.
// Missing kind and apiVersion are derived from the Go type. A missing uid, creationTimestamp or generation is taken
// from the stored object or else assigned. Put ignores the resourceVersion of obj. It returns the stored object, owned
// by the caller.
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
		return nil, fmt.Errorf("cannot put the object: name %q and namespace %q do not fit a %s", u.GetName(),
			u.GetNamespace(), t.res.Kind)
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

// Change edits a stored object without a request. It reads the object, calls change, writes the result, and retries
// after a conflict. It therefore loses no concurrent writes, unlike a sequence of Object and Put. change may run
// several times, each time on a new copy. The error is a NotFound if there is no object. Change returns the stored
// object, owned by the caller.
func (s *Server) Change(
	gvr schema.GroupVersionResource, namespace, name string, change func(*unstructured.Unstructured),
) (*unstructured.Unstructured, error) {
	t, err := s.tableFor(gvr)
	if err != nil {
		return nil, err
	}
	key := objectKey(namespace, name)
	for {
		base := s.store.get(t, key)
		if base == nil {
			return nil, errors.NewNotFound(gvr.GroupResource(), name)
		}
		live, err := base.copy()
		if err != nil {
			return nil, err
		}
		next := live.DeepCopy()
		change(next)
		if next.Object, err = normalize(t, next.Object); err != nil {
			return nil, fmt.Errorf("cannot change the object: %w", err)
		}
		s.complete(t, next, live)
		if o := s.store.commit(t, key, watch.Modified, base, s.builder(t, next)); o != nil {
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
		if !t.res.noGeneration {
			live.SetGeneration(1)
		}
	} else if !t.res.noGeneration && t.specChanged(live.Object, next.Object) {
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

// Object returns a copy of the stored object. The error is a NotFound if there is none. namespace is empty for
// cluster-scoped objects.
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

// Remove deletes an object at once, regardless of its finalizers. The error is a NotFound if there is none.
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
		_, _, err := s.erase(base, false)
		if !stderrors.Is(err, errRaced) {
			return err
		}
	}
}

// Delete deletes an object like a request, with finalizers and grace periods.
func (s *Server) Delete(
	ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions,
) error {
	t, err := s.tableFor(gvr)
	if err != nil {
		return err
	}
	_, _, err = s.remove(ctx, t, namespace, name, opts)
	return err
}
