package fairlead

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/why"
)

// namedKind is a kind that a caller named, and its scope.
type namedKind struct {
	schema.GroupVersionKind
	resource   schema.GroupVersionResource
	namespaced bool
}

// kindNamed returns the kind for a name as in kubectl: "Deployment", "deploy", "deployments.apps",
// "deployments.v1.apps", "Deployment.apps", or as in descriptions of controllers: "Deployment.apps/v1", "ConfigMap.v1".
// It prefers watched kinds, since they need no request and work while the server does not answer. Of several watched
// kinds it returns the first that has the object.
func kindNamed(stores []*cache.Store, mapper meta.RESTMapper, of why.Object) (namedKind, error) {
	name, group, anyGroup := groupNamed(of)
	var watched []namedKind
	for _, st := range stores {
		o := st.Options()
		if (anyGroup || o.Kind.Group == group) &&
			(strings.EqualFold(o.Kind.Kind, name) || strings.EqualFold(o.Resource.Resource, name)) {
			kind, k := namedKind{o.Kind, o.Resource, o.Namespaced}, cache.Key{Namespace: of.Namespace, Name: of.Name}
			if !o.Namespaced {
				k.Namespace = ""
			}
			if _, has := st.Get(k); has {
				return kind, nil
			}
			watched = append(watched, kind)
		}
	}
	if len(watched) > 0 {
		return watched[0], nil
	}
	m, err := mappingNamed(mapper, name, group, anyGroup)
	switch {
	case meta.IsNoMatchError(err):
		return namedKind{}, fmt.Errorf("the API server has no kind %q", of.Kind)
	case err != nil:
		return namedKind{}, fmt.Errorf("cannot find the kind %q: %w", of.Kind, err)
	}
	return namedKind{m.GroupVersionKind, m.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace}, nil
}

var version = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// groupNamed splits the name of a kind into name and group. A name with a version selects its group exactly; the core
// group has an empty name.
func groupNamed(of why.Object) (name, group string, anyGroup bool) {
	if of.Group != "" {
		return of.Kind, of.Group, false
	}
	name, rest, ok := strings.Cut(of.Kind, ".")
	if !ok {
		return name, "", true
	}
	group, _, _ = strings.Cut(rest, "/")
	if v, after, _ := strings.Cut(group, "."); version.MatchString(v) {
		return name, after, false
	}
	return name, group, group == ""
}

func mappingNamed(mapper meta.RESTMapper, name, group string, anyGroup bool) (*meta.RESTMapping, error) {
	if !anyGroup {
		if m, err := mapper.RESTMapping(schema.GroupKind{Group: group, Kind: name}); err == nil {
			return m, nil
		}
	}
	resource := schema.GroupVersionResource{Group: group, Resource: strings.ToLower(name)}
	if anyGroup || group != "" {
		kind, err := mapper.KindFor(resource)
		if err != nil {
			return nil, err
		}
		return mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	kinds, err := mapper.KindsFor(resource) // of every group, since none is named
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		if kind.Group == "" {
			return mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	return nil, &meta.NoResourceMatchError{PartialResource: resource}
}

// resourceIn resolves the kind of an object in the first cluster that has it.
func resourceIn(clusters []*Host, of why.Object) (schema.GroupVersionResource, why.Object, error) {
	var first error
	for _, c := range clusters {
		if c.conn.client == nil {
			continue
		}
		kind, err := kindNamed(c.conn.stores(), c.conn.client.Mapper(), of)
		if err == nil {
			of.Group, of.Kind = kind.Group, kind.Kind
			if !kind.namespaced {
				of.Namespace = ""
			}
			return kind.resource, of, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = client.ErrNotMade
	}
	return schema.GroupVersionResource{}, of, first
}
