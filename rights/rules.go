package rights

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// Rules returns rights as the rules of a role. It ignores Namespace. The mapper returns the resource of a kind. For an
// unknown kind it returns an error that matches meta.IsNoMatchError. Rules returns the errors of all kinds, joined.
// Resources of one group with the same verbs share a rule.
func Rules(mapper meta.RESTMapper, rights []Right) ([]rbacv1.PolicyRule, error) {
	everywhere := slices.Clone(rights)
	for i := range everywhere {
		everywhere[i].Namespace = ""
	}
	var rules []rbacv1.PolicyRule
	var errs []error
	for _, r := range Merge(everywhere) {
		m, err := mapping(mapper, r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		resource := m.Resource.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		rules = join(rules, rbacv1.PolicyRule{
			APIGroups: []string{m.Resource.Group}, Resources: []string{resource}, ResourceNames: r.Names, Verbs: r.Verbs,
		})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	key := func(r rbacv1.PolicyRule) string {
		return strings.Join(slices.Concat(r.APIGroups, r.Resources, r.ResourceNames), "\x00")
	}
	slices.SortStableFunc(rules, func(a, b rbacv1.PolicyRule) int { return strings.Compare(key(a), key(b)) })
	return rules, nil
}

func mapping(mapper meta.RESTMapper, r Right) (*meta.RESTMapping, error) {
	if mapper == nil {
		return nil, fmt.Errorf("cannot tell by which resource %s is served: no mapper", r.Kind)
	}
	m, err := mapper.RESTMapping(r.Kind.GroupKind(), r.Kind.Version)
	if err != nil {
		return nil, fmt.Errorf("cannot tell by which resource %s is served: %w", r.Kind, err)
	}
	return m, nil
}

// join adds a rule to rules. It merges the rule into an existing one for the same resources, or into one of the same
// group with the same verbs.
func join(rules []rbacv1.PolicyRule, rule rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for i, had := range rules {
		if had.APIGroups[0] != rule.APIGroups[0] || !slices.Equal(had.ResourceNames, rule.ResourceNames) {
			continue
		}
		switch {
		case slices.Equal(had.Resources, rule.Resources): // from another version of the kind
			verbs := append(slices.Clone(had.Verbs), rule.Verbs...)
			slices.SortFunc(verbs, byVerb)
			rules[i].Verbs = slices.Compact(verbs)
			return rules
		case slices.Equal(had.Verbs, rule.Verbs) && len(rule.ResourceNames) == 0:
			rules[i].Resources = sorted(append(slices.Clone(had.Resources), rule.Resources...))
			return rules
		}
	}
	return append(rules, rule)
}
