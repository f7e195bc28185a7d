package rights

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Account is the service account of a program.
type Account struct{ Namespace, Name string }

// User returns the user name of the account at the API server.
func (a Account) User() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// Manifests returns the objects that give a service account these rights and no others. A ClusterRole has the rights
// without a namespace. A Role in each namespace has the rights of that namespace. Each role has a binding.
//
// All objects have the name of the account. The ClusterRoles of accounts with the same name in several namespaces
// therefore collide. A right to a cluster-scoped kind is in the ClusterRole, even if it names a namespace. The errors
// are those of [Rules].
func Manifests(mapper meta.RESTMapper, account Account, rights []Right) ([]runtime.Object, error) {
	places := map[string][]Right{}
	var errs []error
	for _, r := range Merge(rights) {
		m, err := mapping(mapper, r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if m.Scope.Name() == meta.RESTScopeNameRoot {
			r.Namespace = ""
		}
		places[r.Namespace] = append(places[r.Namespace], r)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var out []runtime.Object
	for _, namespace := range slices.Sorted(maps.Keys(places)) {
		rules, err := Rules(mapper, places[namespace])
		if err != nil {
			return nil, err
		}
		out = append(out, account.role(namespace, rules)...)
	}
	return out, nil
}

// role returns a role and its binding. An empty namespace means a ClusterRole.
func (a Account) role(namespace string, rules []rbacv1.PolicyRule) []runtime.Object {
	kind := func(k string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: k}
	}
	ref := func(k string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: k, Name: a.Name}
	}
	to := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}}
	at := metav1.ObjectMeta{Namespace: namespace, Name: a.Name}
	if namespace == "" {
		return []runtime.Object{
			&rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: at, Rules: rules},
			&rbacv1.ClusterRoleBinding{
				TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: at, RoleRef: ref("ClusterRole"), Subjects: to,
			},
		}
	}
	return []runtime.Object{
		&rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: at, Rules: rules},
		&rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: at, RoleRef: ref("Role"), Subjects: to},
	}
}

// YAML returns the objects as a YAML stream for kubectl apply.
func YAML(objects []runtime.Object) ([]byte, error) {
	var out bytes.Buffer
	for i, o := range objects {
		if o == nil {
			return nil, errors.New("cannot write nothing as YAML")
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("cannot write a %T as YAML: %w", o, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}
