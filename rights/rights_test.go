package rights_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/rights"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	core    = corev1.SchemeGroupVersion
	secrets = core.WithKind("Secret")
	maps    = core.WithKind("ConfigMap")
	nodes   = core.WithKind("Node")
)

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(secrets, meta.RESTScopeNamespace)
	m.Add(maps, meta.RESTScopeNamespace)
	m.Add(nodes, meta.RESTScopeRoot)
	m.Add(rights.LeaseKind, meta.RESTScopeNamespace)
	m.Add(rights.Events().Kind, meta.RESTScopeNamespace)
	return m
}

func rule(group, resources, names, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: strings.Fields(resources), ResourceNames: strings.Fields(names),
		Verbs: strings.Fields(verbs),
	}
}

func TestRules(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		rights []rights.Right
		want   []rbacv1.PolicyRule
	}{
		"none": {reason: "a program without requests needs no rule"},
		"verbs": {
			reason: "a duplicate request has one rule, with the verbs in their usual order",
			rights: []rights.Right{rights.Of(maps, "watch", "list"), rights.Of(maps, "get", "list")},
			want:   []rbacv1.PolicyRule{rule("", "configmaps", "", "get list watch")},
		},
		"resources": {
			reason: "resources of a group with equal verbs share a rule",
			rights: []rights.Right{rights.Of(secrets, "get"), rights.Of(maps, "get"), rights.Status(maps, "patch")},
			want: []rbacv1.PolicyRule{
				rule("", "configmaps secrets", "", "get"), rule("", "configmaps/status", "", "patch"),
			},
		},
		"names": {
			reason: "create cannot be restricted to names, other verbs are",
			rights: []rights.Right{{Kind: maps, Names: []string{"b", "a"}, Verbs: []string{"get", "create"}}},
			want:   []rbacv1.PolicyRule{rule("", "configmaps", "", "create"), rule("", "configmaps", "a b", "get")},
		},
		"covered": {
			reason: "a rule for all objects covers that of one object",
			rights: []rights.Right{
				{Kind: maps, Names: []string{"a"}, Verbs: []string{"get", "patch"}}, rights.Of(maps, "get"),
			},
			want: []rbacv1.PolicyRule{rule("", "configmaps", "", "get"), rule("", "configmaps", "a", "patch")},
		},
		"lease": {
			reason: "a candidate reads and renews its own Lease",
			rights: rights.Lease("operators", "web"),
			want: []rbacv1.PolicyRule{
				rule("coordination.k8s.io", "leases", "", "create"), rule("coordination.k8s.io", "leases", "web", "get update"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				rand.Shuffle(len(tc.rights), func(i, j int) {
					tc.rights[i], tc.rights[j] = tc.rights[j], tc.rights[i]
				})
				got, err := rights.Rules(mapper(), tc.rights)
				if err != nil {
					t.Fatal(err)
				}
				opt := cmp.Transformer("none", func(s []string) string { return strings.Join(s, " ") })
				if d := cmp.Diff(tc.want, got, opt); d != "" {
					t.Fatalf("%s: %s", tc.reason, d)
				}
			}
		})
	}
}

func TestUnknownKinds(t *testing.T) {
	odd := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Odd"}
	other := odd
	other.Kind = "Other"
	all := []rights.Right{rights.Of(odd, "get"), rights.Of(maps, "get"), rights.Of(other, "get")}
	_, err := rights.Rules(mapper(), all)
	_, err2 := rights.Manifests(mapper(), rights.Account{Namespace: "a", Name: "b"}, all)
	for _, err := range []error{err, err2} {
		if !meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "Odd") || !strings.Contains(err.Error(), "Other") {
			t.Errorf("the error is %v; want both kinds", err)
		}
	}
}

func TestManifests(t *testing.T) {
	objects, err := rights.Manifests(mapper(), rights.Account{Namespace: "web-system", Name: "web"}, append(
		rights.Lease("web-system", "web"), rights.Of(maps, "list"), rights.Right{
			Kind: nodes, Namespace: "web-system", Verbs: []string{"get"},
		}))
	if err != nil {
		t.Fatal(err)
	}
	text, err := rights.YAML(objects)
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: web
rules:
- apiGroups:
  - ""
  resources:
  - configmaps
  verbs:
  - list
- apiGroups:
  - ""
  resources:
  - nodes
  verbs:
  - get
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: web
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: web
subjects:
- kind: ServiceAccount
  name: web
  namespace: web-system
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: web
  namespace: web-system
rules:
- apiGroups:
  - coordination.k8s.io
  resources:
  - leases
  verbs:
  - create
- apiGroups:
  - coordination.k8s.io
  resourceNames:
  - web
  resources:
  - leases
  verbs:
  - get
  - update
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: web
  namespace: web-system
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: web
subjects:
- kind: ServiceAccount
  name: web
  namespace: web-system
`
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Error(d)
	}
}
