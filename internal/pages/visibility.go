package pages

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/why"
)

// ResourceOf returns the resource of an object, and the object with its real kind. It fails for an unknown kind.
type ResourceOf func(of why.Object) (schema.GroupVersionResource, why.Object, error)

// Visibility decides which objects a reader may see on a page about the whole program: those that the reader may get.
// It checks the broadest right first, so that a reader with full access costs one review per kind. A page makes one
// each time it is rendered.
type Visibility struct {
	rd       *Reader
	resource ResourceOf
	known    map[why.Object]bool
	asked    int
}

// maxAsked bounds the reviews for one page. Objects beyond it are not shown.
const maxAsked = 64

// NewVisibility returns a Visibility for a reader.
func NewVisibility(rd *Reader, resource ResourceOf) *Visibility {
	return &Visibility{rd: rd, resource: resource, known: map[why.Object]bool{}}
}

// MayGet reports whether the reader may get an object. An error means that the check failed or the session is over.
func (v *Visibility) MayGet(ctx context.Context, of why.Object) (bool, error) {
	if v.rd.open() {
		return true, nil
	}
	if of.Kind == "" { // not an object of the API server
		return false, nil
	}
	for _, part := range []why.Object{
		{Group: of.Group, Kind: of.Kind}, {Group: of.Group, Kind: of.Kind, Namespace: of.Namespace}, of,
	} {
		may, known := v.known[part]
		if !known {
			var err error
			if may, err = v.ask(ctx, part); err != nil {
				return false, err
			}
			v.known[part] = may
		}
		if may {
			return true, nil
		}
	}
	return false, nil
}

func (v *Visibility) ask(ctx context.Context, of why.Object) (bool, error) {
	if v.rd.isDenied(of) {
		return false, nil
	}
	if v.asked++; v.asked > maxAsked {
		return false, nil
	}
	resource, real, err := v.resource(Exact(of))
	if err != nil {
		return false, nil //nolint:nilerr // an unknown kind is hidden
	}
	err = v.rd.May(ctx, access.Access{
		Verb: "get", Group: resource.Group, Resource: resource.Resource, Namespace: real.Namespace, Name: of.Name,
	})
	if Refused(err) && !Unknown(err) {
		v.rd.deny(of)
		return false, nil
	}
	return err == nil, err
}

// Exact qualifies the kind of an object without a group as a core kind. Otherwise a kind of the same name in another
// group could match.
func Exact(of why.Object) why.Object {
	if of.Group == "" && !strings.Contains(of.Kind, ".") {
		of.Kind += ".v1"
	}
	return of
}
