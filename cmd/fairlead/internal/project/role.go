package project

import (
	"bytes"
	"errors"
	"io"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairlead-io/fairlead/rights"
)

// roleFile has the rights of the program. make manifests writes it from the declarations.
const roleFile = "deploy/rbac.yaml"

// role is the content of roleFile. The kinds of its rights are the names of resources, since the file has no kinds.
type role struct {
	account rights.Account
	rights  []rights.Right
}

// grant adds rights to roleFile, so that a project passes its tests before the next make manifests. A file that make
// manifests would not write in this form stays unchanged; then a test of the project reports it.
func grant(p *existing, more ...rights.Right) {
	text, err := p.read(roleFile)
	if err != nil {
		return
	}
	r, err := parseRole(text)
	if err != nil {
		return
	}
	if same, err := r.yaml(); err != nil || !bytes.Equal(same, text) {
		return
	}
	r.rights = append(r.rights, more...)
	if text, err = r.yaml(); err == nil {
		p.content[roleFile] = text
	}
}

// parseRole reads the roles of a file.
func parseRole(text []byte) (*role, error) {
	r := &role{}
	documents := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o struct {
			rbacv1.ClusterRole `json:",inline"`
			Subjects           []rbacv1.Subject `json:"subjects"`
		}
		switch err := documents.Decode(&o); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return nil, err
		}
		for _, s := range o.Subjects {
			r.account = rights.Account{Namespace: s.Namespace, Name: s.Name}
		}
		for _, rule := range o.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					kind, sub, _ := strings.Cut(resource, "/")
					r.rights = append(r.rights, rights.Right{
						Kind:        schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
						Subresource: sub, Verbs: rule.Verbs, Names: rule.ResourceNames, Namespace: o.Namespace,
					})
				}
			}
		}
	}
}

// yaml returns the text of the file.
func (r *role) yaml() ([]byte, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for i := range r.rights {
		kind := &r.rights[i].Kind
		kind.Version = "v1" // one version, so that rights to a resource are merged
		resource := kind.GroupVersion().WithResource(kind.Kind)
		mapper.AddSpecific(*kind, resource, resource, meta.RESTScopeNamespace)
	}
	objects, err := rights.Manifests(mapper, r.account, r.rights)
	if err != nil {
		return nil, err
	}
	return rights.YAML(objects)
}
