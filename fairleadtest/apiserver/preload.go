package apiserver

import (
	"bytes"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Encoded is an encoded object for Preload and Publish. The server retains its slices and maps, so the caller must not
// modify them.
type Encoded struct {
	Namespace, Name, UID string
	Labels               map[string]string
	// JSON is the whole object. Its metadata must agree with the fields above and with the given version. JSON that
	// begins with kind and apiVersion, in this order and without spaces as servers write it, is cheapest. JSON that
	// begins with {"metadata": has neither and is not even copied.
	JSON []byte
	// Proto is the protobuf message without envelope. If it is nil, it is created from JSON at first use.
	Proto []byte
}

// Preload stores n encoded objects, each in its own revision. It is for benchmarks of clients with 100,000 and more
// objects. encode is called for each i below n with the version that the object must carry, and for all of them again
// after a concurrent write. Existing objects are replaced. Lists, WatchLists and watches then only copy bytes.
func (s *Server) Preload(gvr schema.GroupVersionResource, n int, encode func(i int, version string) Encoded) error {
	t, err := s.tableFor(gvr)
	if err != nil {
		return err
	}
	for {
		base := s.store.current()
		objects := make([]*object, n)
		for i := range n {
			if objects[i], err = s.encoded(t, base+1+uint64(i),
				func(version string) Encoded { return encode(i, version) }); err != nil {
				return fmt.Errorf("cannot store object %d: %w", i, err)
			}
		}
		if s.store.commitAll(t, base, objects) {
			return nil
		}
	}
}

// Publish creates or replaces one encoded object. encode gets the version that the object must carry and may be called
// again. Publish is the cheapest write, for benchmarks of the path from a write to a handler.
func (s *Server) Publish(gvr schema.GroupVersionResource, encode func(version string) Encoded) error {
	return s.Preload(gvr, 1, func(_ int, version string) Encoded { return encode(version) })
}

// encoded returns the stored form. JSON that does not begin like the server's own is decoded and encoded again.
func (s *Server) encoded(t *table, rev uint64, encode func(string) Encoded) (*object, error) {
	version := s.store.version.format(rev)
	e := encode(version)
	o := &object{
		table: t, rev: rev, namespace: e.Namespace, name: e.Name, uid: e.UID, version: version, labels: e.Labels,
		bare: e.JSON, proto: e.Proto,
	}
	if bytes.HasPrefix(e.JSON, []byte(`{"metadata":`)) {
		return o, nil
	}
	if rest, ok := bytes.CutPrefix(e.JSON, []byte(t.prefix)); ok {
		o.bare = append([]byte{'{'}, rest...)
		return o, nil
	}
	content, err := o.read()
	if err != nil {
		return nil, err
	}
	o.content, o.bare = content, nil
	return o, nil
}

// commitAll stores objects with the revisions after base if base is still the present revision.
func (st *store) commitAll(t *table, base uint64, objects []*object) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.rev != base {
		return false
	}
	for i, o := range objects {
		r := &revision{rev: o.rev, typ: watch.Added, cur: o, prev: t.live[o.key()]}
		switch {
		case r.prev != nil:
			r.typ = watch.Modified
		case len(objects) > 1:
			t.keys = append(t.keys, o.key())
		default:
			at, _ := slices.BinarySearch(t.keys, o.key())
			t.keys = slices.Insert(t.keys, at, o.key())
		}
		t.live[o.key()] = o
		t.log = append(t.log, r)
		st.rev = objects[i].rev
		st.report(r)
	}
	if len(objects) > 1 {
		slices.Sort(t.keys)
	}
	t.wake()
	if st.crds != nil {
		for _, r := range slices.Clone(t.log[len(t.log)-len(objects):]) {
			st.crds.written(t, r)
		}
	}
	return true
}

// Poison replaces the JSON of a stored object with the result of damage, in a new revision. Lists and watches send it
// unchanged. If the result cannot be encoded as protobuf, the server sends a protobuf message that cannot be decoded.
// The object keeps its key, uid and labels. damage may be called again after a concurrent write.
func (s *Server) Poison(
	gvr schema.GroupVersionResource, namespace, name string, damage func(json []byte) []byte,
) error {
	t, err := s.tableFor(gvr)
	if err != nil {
		return err
	}
	for {
		rev := s.store.current()
		base := s.store.get(t, objectKey(namespace, name))
		if base == nil {
			return errors.NewNotFound(gvr.GroupResource(), name)
		}
		next := base.withVersion(s.store.version, rev+1)
		healthy, err := (encoding{}).appendObject(nil, next)
		if err != nil {
			return err
		}
		out := &object{
			table: t, rev: rev + 1, namespace: base.namespace, name: base.name, uid: base.uid,
			version: s.store.version.format(rev + 1), labels: base.labels, poisoned: true,
		}
		if out.metaProto, err = next.partialProto(); err != nil {
			return err
		}
		if out.metaJSON, err = next.partialJSON(); err != nil {
			return err
		}
		bad := damage(healthy)
		if rest, ok := bytes.CutPrefix(bad, []byte(t.prefix)); ok {
			out.bare = append([]byte{'{'}, rest...)
		} else {
			out.bare, out.verbatim = bad, true
		}
		if s.store.commitAll(t, rev, []*object{out}) {
			return nil
		}
	}
}
