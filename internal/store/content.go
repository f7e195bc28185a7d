package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/cut"
)

// Content says what of each object a store holds. The zero value is all of it but managedFields.
//
// What is not held is cut out of the bytes that came, before anything is stored, saved, set aside as unreadable or laid
// over as the answer to an own write.
type Content struct {
	// ManagedFields keeps the managedFields of objects, too. What differs in them only is a change then.
	ManagedFields bool
	// Metadata keeps the metadata of objects and nothing else, which is also all that is transferred: the server is
	// asked for no more, and what one sends that does not know how is cut before it is kept. Views are of
	// metav1.PartialObjectMetadata; to read such an object as anything else is ErrMetadataOnly.
	Metadata bool
	// Drop names fields that are cut out of objects, by their members as JSON has them:
	//
	//	data
	//	spec.template
	//	metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]
	//
	// A member or key with dots in its name is in brackets. What is not there is no error. A path goes through objects and
	// maps, not through lists, of which all can be cut, or nothing: an object that has a list on the way of a path is
	// refused, which is told as an object that cannot be read. What a store finds objects by cannot be cut: kind,
	// apiVersion, and of the metadata name, namespace, uid, resourceVersion, generation, deletionTimestamp, labels,
	// ownerReferences and finalizers.
	Drop []string
	// Transform is run on every decoded object, a pointer of the type that the reader asks for, before it is handed out,
	// and returns it, or another one of its type. It changes what readers see, not what is kept: Record.Raw and AppendJSON
	// do not know it. It must be idempotent, and safe for concurrent use. Of an error or a panic, or of another type, the
	// reader is told by a DecodeError. A store with one is shared with nobody else, unless it is that of CacheOptions.
	Transform func(any) (any, error)
}

// Check says what is wrong with it: a path that is malformed, or whose field cannot be dropped, and what contradicts
// itself.
func (c Content) Check() error {
	_, err := c.cuts()
	return err
}

// found are the members of metadata that stores find objects by.
var found = []string{
	"name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp", "labels", "ownerReferences",
	"finalizers",
}

// cuts returns the paths that are dropped.
func (c Content) cuts() (*cut.Paths, error) {
	p, err := cut.Parse(c.Drop)
	if err != nil {
		return nil, fmt.Errorf("cannot drop fields: %w", err)
	}
	for i := range p.Len() {
		path := p.Path(i)
		metadata := path[0] == "metadata"
		switch {
		case path[0] == "kind", path[0] == "apiVersion", metadata && (len(path) == 1 || slices.Contains(found, path[1])):
			return nil, fmt.Errorf("cannot drop %s: the store finds objects by it", p.Text(i))
		case metadata && path[1] == "managedFields" && c.ManagedFields:
			return nil, fmt.Errorf("cannot drop %s: ManagedFields says that they are kept", p.Text(i))
		}
	}
	return p, nil
}

// name tells contents apart by what is kept, for people and on disk: the same name is the same bytes. That of the zero
// value is "". It says nothing of a Transform.
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
		parts = append(parts, "without "+p.String())
	}
	return strings.Join(parts, ", ")
}

// with is what two ask for: what either drops is dropped, and managedFields are kept if either keeps them. The
// Transform of o counts, if it has one.
func (c Content) with(o Content) Content {
	out := Content{
		ManagedFields: c.ManagedFields || o.ManagedFields, Metadata: c.Metadata || o.Metadata,
		Drop: slices.Concat(c.Drop, o.Drop), Transform: o.Transform,
	}
	if out.Transform == nil {
		out.Transform = c.Transform
	}
	return out
}

// ofMetadata is what of it concerns the metadata of objects.
func (c Content) ofMetadata() Content {
	out := Content{ManagedFields: c.ManagedFields, Metadata: true, Transform: c.Transform}
	p, err := c.cuts()
	if err != nil {
		return c
	}
	for i := range p.Len() {
		if p.Path(i)[0] == "metadata" {
			out.Drop = append(out.Drop, p.Text(i))
		}
	}
	return out
}

// rank is lower for a content that holds more of an object.
func (c Content) rank() string {
	switch {
	case c.Metadata:
		return "c"
	case len(c.Drop) > 0 || c.Transform != nil:
		return "b"
	}
	return "a"
}
