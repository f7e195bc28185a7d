package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/cut"
)

// Content restricts what a store holds of each object. The zero value keeps everything but managedFields.
//
// Other content is cut out of the bytes on arrival, before they are stored, saved, quarantined or laid over the store
// as the answer to an own write.
type Content struct {
	// ManagedFields keeps the managedFields of objects. A change of managedFields alone is then a change of the object.
	ManagedFields bool
	// Metadata keeps only the metadata of objects. The source asks the server for metadata only. If a server sends
	// whole objects anyway, they are cut before they are kept. Views are of metav1.PartialObjectMetadata; reading an
	// object as another type fails with ErrMetadataOnly.
	Metadata bool
	// Drop names fields to cut out of objects, by their names in JSON:
	//
	//	data
	//	spec.template
	//	metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]
	//
	// A member or key with dots in its name is in brackets. An object may lack the field. A path goes through objects
	// and maps, but not through lists: a list can only be cut as a whole. An object that has a list along a path is
	// quarantined, like one that cannot be read. The fields by which a store finds objects cannot be dropped: kind,
	// apiVersion, and in the metadata name, namespace, uid, resourceVersion, generation, deletionTimestamp, labels,
	// ownerReferences and finalizers.
	Drop []string
	// Keep excepts objects from Drop: an object for which it returns true keeps all of its fields. If nil, there are no
	// exceptions. Keep is called for each version of each object that arrives, with the labels of that version. It must
	// depend on its arguments alone and be safe for concurrent use. It must not keep or change labels. An object for which
	// it panics is quarantined. A quarantined object never keeps fields of Drop. A store with a Keep is not saved, since a
	// later run could not tell whether it has the same function. A request with a Keep does not share a store.
	Keep func(namespace, name string, labels map[string]string) bool
	// Transform is called for every decoded object before a reader gets it. Its argument and its result are pointers of
	// the type that the reader asks for. It changes what readers see, not what is kept: Record.Raw and AppendJSON do
	// not apply it. It must be idempotent and safe for concurrent use. If it fails, panics or returns another type, the
	// reader gets a DecodeError. A store with a Transform is not shared with other requests, unless the Transform is
	// that of CacheOptions.
	Transform func(any) (any, error)
}

// Check returns an error for a malformed path, a path that cannot be dropped, and fields of c that contradict each
// other.
func (c Content) Check() error {
	_, err := c.cuts()
	return err
}

// found lists the members of metadata by which stores find objects.
var found = []string{
	"name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp", "labels", "ownerReferences",
	"finalizers",
}

// cuts parses Drop and checks its paths.
func (c Content) cuts() (*cut.Paths, error) {
	p, err := cut.Parse(c.Drop)
	if err != nil {
		return nil, fmt.Errorf("cannot drop fields: %w", err)
	}
	if c.Keep != nil && p.Len() == 0 {
		return nil, errKeepsAll
	}
	for i := range p.Len() {
		path := p.Path(i)
		metadata := path[0] == "metadata"
		switch {
		case path[0] == "kind", path[0] == "apiVersion",
			metadata && (len(path) == 1 || slices.Contains(found, path[1])):
			return nil, fmt.Errorf("cannot drop %s: the store finds objects by it", p.Text(i))
		case metadata && path[1] == "managedFields" && c.ManagedFields:
			return nil, fmt.Errorf("cannot drop %s: ManagedFields says that they are kept", p.Text(i))
		}
	}
	return p, nil
}

// errKeepsAll is the mistake of a Content with Keep and without Drop.
var errKeepsAll = errors.New("cannot except objects with Keep: Drop names no fields")

// name identifies a content in messages and file names. Contents with the same name and the same Keep keep the same
// bytes. The name of the zero value is "". It ignores Transform.
func (c Content) name() string {
	parts := make([]string, 0, 3)
	if c.Metadata {
		parts = append(parts, "metadata")
	}
	if c.ManagedFields {
		parts = append(parts, "managedFields")
	}
	p, err := c.cuts()
	if err == nil && p.Len() > 0 {
		without := "without " + p.String()
		if c.Keep != nil {
			without += " except where Keep says"
		}
		parts = append(parts, without)
	}
	return strings.Join(parts, ", ")
}

// with combines two contents. A field is dropped if either drops it, and managedFields are kept if either keeps them.
// The Transform of o takes precedence. Only one of two contents with a Keep may drop fields; see contradicts.
func (c Content) with(o Content) Content {
	out := Content{
		ManagedFields: c.ManagedFields || o.ManagedFields, Metadata: c.Metadata || o.Metadata,
		Drop: slices.Concat(c.Drop, o.Drop), Keep: o.Keep, Transform: o.Transform,
	}
	if out.Keep == nil {
		out.Keep = c.Keep
	}
	if out.Transform == nil {
		out.Transform = c.Transform
	}
	return out
}

// contradicts reports whether two contents cannot be combined: both drop fields, with different exceptions.
func (c Content) contradicts(o Content) bool {
	return (c.Keep != nil || o.Keep != nil) && len(c.Drop) > 0 && len(o.Drop) > 0
}

// isOwn reports whether a request of this content has a function that other requests may not have.
func (c Content) isOwn() bool {
	if c.Metadata {
		c = c.ofMetadata()
	}
	return c.Transform != nil || c.Keep != nil
}

// ofMetadata returns the part of c that concerns the metadata of objects.
func (c Content) ofMetadata() Content {
	out := Content{ManagedFields: c.ManagedFields, Metadata: true, Transform: c.Transform}
	p, err := c.cuts()
	if err != nil {
		return c
	}
	for i := range p.Len() {
		if p.Path(i)[0] == "metadata" {
			out.Drop, out.Keep = append(out.Drop, p.Text(i)), c.Keep
		}
	}
	return out
}

// rank orders contents: those that hold more of an object come first.
func (c Content) rank() string {
	switch {
	case c.Metadata:
		return "c"
	case len(c.Drop) > 0 || c.Transform != nil:
		return "b"
	}
	return "a"
}
