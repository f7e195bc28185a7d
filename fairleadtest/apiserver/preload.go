package apiserver

import (
	"bytes"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Encoded is an object as bytes, for Preload and Publish. The server keeps its slices and maps: do not change them.
type Encoded struct {
	Namespace, Name, UID string
	Labels               map[string]string
	// JSON is the whole object; metadata must agree with the fields above and with the version given. Cheapest is JSON
	// that begins with kind and apiVersion, in this order and without spaces, as servers write it. JSON that begins with
	// {"metadata": has neither, and is not even copied.
	JSON []byte
	// Proto is the protobuf message without envelope; nil: it is made from JSON when first asked for.
	Proto []byte
}

// Preload stores n objects that are encoded already, each in a revision of its own: for benchmarks of clients with
// 100,000 objects and more. encode is called for each i below n with the version that the object must carry, and for
// all of them again if something else is written meanwhile. Objects that exist are replaced. Lists, WatchLists and
// watches only copy bytes then.
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

// Publish creates or replaces one object that is encoded already; encode is given the version that it must carry, and
// may be called again. It is the cheapest write there is, for benchmarks of the way from a write to a handler.
func (s *Server) Publish(gvr schema.GroupVersionResource, encode func(version string) Encoded) error {
	return s.Preload(gvr, 1, func(_ int, version string) Encoded { return encode(version) })
}

// encoded makes the stored form. JSON that does not begin as the server's own is decoded and encoded again.
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

// commitAll stores objects with the revisions after base, if base is still the present revision.
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
	}
	if len(objects) > 1 {
		slices.Sort(t.keys)
	}
	t.wake()
	return true
}

// Poison replaces the bytes of a stored object by what damage makes of its JSON, in a new revision: lists and watches
// send it as it is. What cannot be encoded as protobuf any more is sent there as a message that does not decode. The
// object keeps its key, uid and labels. damage may be called again if something else is written meanwhile.
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
