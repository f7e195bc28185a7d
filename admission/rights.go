package admission

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Rights are what the program needs to be allowed for its hooks, besides what the functions do. What a Role or a
// ClusterRole can name is named; RBAC knows no names for create.
type Rights struct {
	// Namespaced belongs into a Role in the namespace of the program: its Secret. The first rule, to create it, can be
	// left out where there is one, empty perhaps, before the program starts.
	Namespaced []rbacv1.PolicyRule
	// Cluster belongs into a ClusterRole: its configurations, and the CustomResourceDefinitions that it converts.
	Cluster []rbacv1.PolicyRule
}

// Rights returns what the hooks that were declared so far need. Of the types that are converted it asks the API server
// for the names of their resources.
func (h *Hooks) Rights() (Rights, error) {
	if h == nil || h.host == nil {
		return Rights{}, fmt.Errorf("cannot say what rights hooks need: %w: they have no host", ErrInvalid)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Rights{
		Namespaced: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{secrets.Resource}, Verbs: []string{"create"}},
			{
				APIGroups: []string{""}, Resources: []string{secrets.Resource}, Verbs: []string{"get", "update"},
				ResourceNames: []string{h.o.Secret},
			},
		},
		Cluster: []rbacv1.PolicyRule{{
			APIGroups: []string{validating.Group}, Resources: []string{mutating.Resource, validating.Resource},
			Verbs: []string{"create", "delete", "get", "patch"}, ResourceNames: []string{h.o.Name},
		}},
	}
	var converted []string
	for _, c := range h.converters {
		mapping, err := h.host.Client().Mapper().RESTMapping(c.kind, c.hub)
		if err != nil {
			return Rights{}, c.fail(noMatch(err))
		}
		converted = append(converted, mapping.Resource.GroupResource().String())
	}
	if converted != nil {
		r.Cluster = append(r.Cluster, rbacv1.PolicyRule{
			APIGroups: []string{definitions.Group}, Resources: []string{definitions.Resource},
			Verbs: []string{"get", "patch"}, ResourceNames: converted,
		})
	}
	return r, nil
}
