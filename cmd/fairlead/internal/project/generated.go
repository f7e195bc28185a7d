package project

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/rights"
)

// addGenerated adds the output of make manifests for the first kind, so that a new project is complete. Tests verify
// that both are equal.
func addGenerated(f files, n names) error {
	var err error
	if f[roleFile], err = roleOf(n); err != nil {
		return fmt.Errorf("cannot write %s: %w", roleFile, err)
	}
	f[n.path(deepCopyFile)], err = deepCopyOf(n)
	return err
}

// roleOf returns the rights of a new program.
func roleOf(n names) ([]byte, error) {
	account := rights.Account{Namespace: n.Name + "-system", Name: n.Name}
	all := append(rights.Lease(account.Namespace, account.Name), rights.Events())
	for i := range all { // see role
		all[i].Kind.Kind = strings.ToLower(all[i].Kind.Kind) + "s"
	}
	resource := func(group, name string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: "v1", Kind: name}
	}
	all = append(all,
		rights.Of(resource("authentication.k8s.io", "tokenreviews"), "create"),
		rights.Of(resource("authorization.k8s.io", "subjectaccessreviews"), "create"))
	if !n.Example {
		r := role{account, append(all, emptyRights(n)...)}
		return r.yaml()
	}
	own := resource(n.Group, n.Plural)
	all = append(all, rights.Of(own, "get", "list", "watch", "patch"), rights.Status(own, "patch"))
	for _, child := range []schema.GroupVersionKind{
		resource("", "configmaps"), resource("", "services"), resource("apps", "deployments"),
	} {
		all = append(all, rights.Of(child, "get", "list", "watch", "create", "patch", "delete"))
	}
	r := role{account, all}
	return r.yaml()
}
