package project

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/rights"
)

// KindOptions configures NewKind. Group and Kind are required.
type KindOptions struct {
	// Dir is the directory of the project. Default: the current one.
	Dir string
	// Group, Version and Kind are as in [Options].
	Group, Version, Kind string
	// ClusterScoped makes a kind whose objects are in no namespace.
	ClusterScoped bool
}

// NewKind adds a kind with an empty reconciler to a project. It runs no other program. After an error, the project is
// unchanged. Errors match [ErrModule] and the other errors of this package.
func NewKind(o KindOptions) (*Made, error) {
	o.Version = cmp.Or(o.Version, DefaultVersion)
	if err := checkKind(o.Group, o.Version, o.Kind); err != nil {
		return nil, err
	}
	p, err := open(o.Dir)
	if err != nil {
		return nil, err
	}
	n := p.names(o.Group, o.Version, o.Kind)
	n.ClusterScoped = o.ClusterScoped
	newGroup, err := p.newGroup(n)
	if err != nil {
		return nil, err
	}
	parts := []string{"kind", "faults"}
	if newGroup {
		parts = append(parts, "group")
	}
	if err := p.render(n, "kind", n.Kind, parts...); err != nil {
		return nil, err
	}
	if err := addUntyped(p, n, n.Kind, n.Kind+"List", n.Kind+"Spec", n.Kind+"Status"); err != nil {
		return nil, err
	}
	for _, err := range []error{
		p.register(n, newGroup),
		p.add("controller/all_controllers.go", "controllers", fmt.Sprintf("declare%s(rt)", n.Kind)),
		p.add("deploy/kustomization.yaml", "crds", "- "+n.path("crds/GROUPFULL_PLURAL.yaml")),
		addDeepCopy(p, n, newGroup),
	} {
		if err != nil {
			return nil, err
		}
	}
	grant(p, emptyRights(n)...)
	return p.save()
}

// emptyRights returns the rights of the empty reconciler.
func emptyRights(n names) []rights.Right {
	primary := schema.GroupVersionKind{Group: n.Group, Version: n.Version, Kind: n.Plural} // see role
	return []rights.Right{rights.Of(primary, "get", "list", "watch"), rights.Status(primary, "patch")}
}

// addDeepCopy adds the deep copy functions of a kind.
func addDeepCopy(p *existing, n names, newGroup bool) error {
	name := n.path(deepCopyFile)
	text, err := deepCopyOf(n)
	if err != nil {
		return err
	}
	if !newGroup {
		old, err := p.read(name)
		if err != nil {
			return err
		}
		if text, err = mergeDeepCopy(old, text); err != nil {
			return p.no(fmt.Errorf("%s: %w", name, err))
		}
	}
	p.content[name] = text
	return nil
}

// addUntyped returns an error if the package of the version has one of these types.
func addUntyped(p *existing, n names, types ...string) error {
	of, err := filepath.Glob(p.at(n.path("api/GROUP/VERSION/*.go")))
	if err != nil {
		return p.no(err)
	}
	for _, file := range of {
		text, err := os.ReadFile(file)
		if err != nil {
			return p.no(err)
		}
		for _, found := range typeLine.FindAllSubmatch(text, -1) {
			for _, typ := range types {
				if string(found[1]) == typ {
					return invalid(ErrExists, "kind", n.Kind, "type %s, in %s", typ, file)
				}
			}
		}
	}
	return nil
}
