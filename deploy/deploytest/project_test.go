package deploytest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// TestProject: what fairlead new writes into deploy/ is built, also with a kind that was added, and the image has its
// name.
func TestProject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, web := filepath.Join(dir, "fairlead"), filepath.Join(dir, "web")
	for _, args := range [][]string{
		{"go", "-C", "../..", "build", "-o", program, "./cmd/fairlead"},
		{program, "new", web, "--module", "example.com/web", "--group", "web.example.com", "--kind", "WebPage"},
		{program, "new", "kind", "--dir", web, "--group", "shop.example.org", "--kind", "Order"},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join(web, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, r := range built.Resources() {
		got[r.GetKind()]++
		if r.GetKind() != "Deployment" {
			continue
		}
		image, err := r.GetFieldValue("spec.template.spec.containers.0.image")
		if err != nil || image != "web:dev" || r.GetNamespace() != "web-system" {
			t.Errorf("the image is %v (%v), in %s", image, err, r.GetNamespace())
		}
	}
	want := map[string]int{
		"Namespace": 1, "CustomResourceDefinition": 2, "ServiceAccount": 1, "ClusterRole": 1, "ClusterRoleBinding": 1, "Role": 1,
		"RoleBinding": 1, "Deployment": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}
