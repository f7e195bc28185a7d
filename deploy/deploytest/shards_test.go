package deploytest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// buildShared builds deploy/ with the component deploy/shards, as a user of both does.
func buildShared(t *testing.T) resmap.ResMap {
	t.Helper()
	deploy, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	to, err := filepath.Rel(dir, deploy)
	if err != nil {
		t.Fatal(err)
	}
	own := "resources: [" + to + "]\ncomponents: [" + to + "/shards]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize build: %v", err)
	}
	return built
}

// TestShared: with the component, three replicas share the operations, and two stay when nodes are drained. They have
// the rights to Leases that a group needs, in the namespace of the controller.
func TestShared(t *testing.T) {
	t.Parallel()
	alone, built := build(t), buildShared(t)
	if got := at(t, built, "Deployment", "spec", "replicas"); got != 3 {
		t.Errorf("%v replicas", got)
	}
	if got := at(t, built, "PodDisruptionBudget", "spec", "minAvailable"); got != 2 {
		t.Errorf("%v replicas stay", got)
	}
	path := []any{"spec", "template", "spec", "containers", 0, "args"}
	args := at(t, built, "Deployment", path...).([]any)
	if want := slices.Clone(at(t, alone, "Deployment", path...).([]any)); slices.Contains(args, any("--leader-elect")) {
		t.Errorf("the replicas elect a leader: %v", args)
	} else {
		want[slices.Index(want, any("--leader-elect"))] = "--shards"
		if diff := cmp.Diff(want, args); diff != "" {
			t.Errorf("arguments, -want +got:\n%s", diff)
		}
	}
	roles := 0
	for _, r := range built.Resources() {
		if r.GetName() != "fairlead-controller-shards" {
			continue
		}
		roles++
		clusterWide := strings.HasPrefix(r.GetKind(), "Cluster")
		m, err := r.Map()
		if err != nil {
			t.Fatal(err)
		}
		if r.GetNamespace() != namespace && !clusterWide {
			t.Errorf("%s is in namespace %q", r.GetKind(), r.GetNamespace())
		}
		if rules, ok := m["rules"]; ok {
			want := []any{map[string]any{
				"apiGroups": []any{"coordination.k8s.io"}, "resources": []any{"leases"},
				"verbs": []any{"get", "list", "watch", "create", "update", "patch", "delete"},
			}}
			if clusterWide {
				want = []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"namespaces"}, "verbs": []any{"list"}}}
			}
			if diff := cmp.Diff(want, rules); diff != "" {
				t.Errorf("rights, -want +got:\n%s", diff)
			}
		}
	}
	if roles != 4 {
		t.Errorf("%d objects, want a Role and its binding", roles)
	}
}
