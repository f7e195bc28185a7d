package project

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/rights"
)

// addGenerated adds the output of make manifests for the first kind to the files of a project, so that it is complete.
// Tests verify that both are equal.
func addGenerated(to files, n names) error {
	var err error
	if to["deploy/rbac.yaml"], err = rbacOf(n); err != nil {
		return fmt.Errorf("cannot write deploy/rbac.yaml: %w", err)
	}
	to[n.path(deepCopyFile)], err = deepCopyOf(n)
	return err
}

// rbacOf returns the rights of the controller of a kind.
func rbacOf(n names) ([]byte, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	kind := func(gv schema.GroupVersion, kind string) schema.GroupVersionKind {
		k := gv.WithKind(kind)
		mapper.Add(k, meta.RESTScopeNamespace)
		return k
	}
	config, service := kind(corev1.SchemeGroupVersion, "ConfigMap"), kind(corev1.SchemeGroupVersion, "Service")
	deployment := kind(appsv1.SchemeGroupVersion, "Deployment")
	own := schema.GroupVersion{Group: n.Group, Version: n.Version}
	primary := own.WithKind(n.Kind)
	mapper.AddSpecific(primary, own.WithResource(n.Plural), own.WithResource(n.Lower), meta.RESTScopeNamespace)
	mapper.Add(rights.Events().Kind, meta.RESTScopeNamespace)
	mapper.Add(rights.LeaseKind, meta.RESTScopeNamespace)

	account := rights.Account{Namespace: n.Name + "-system", Name: n.Name}
	all := append(rights.Lease(account.Namespace, account.Name), rights.Events(),
		rights.Of(primary, "get", "list", "watch", "patch"), rights.Status(primary, "patch"))
	for _, child := range []schema.GroupVersionKind{config, deployment, service} {
		all = append(all, rights.Of(child, "get", "list", "watch", "create", "patch", "delete"))
	}
	objects, err := rights.Manifests(mapper, account, all)
	if err != nil {
		return nil, err
	}
	return rights.YAML(objects)
}
