package deploytest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

// TestProject: what fairlead new writes into deploy/ is built, by kustomize and by helm, which make the same of it, at
// first, with a kind that was added, and where somebody has changed a manifest or the rights; a real API server takes
// it. Each value of the chart arrives.
func TestProject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, web := filepath.Join(dir, "fairlead"), filepath.Join(dir, "web")
	run(t, "go", "-C", "../..", "build", "-o", program, "./cmd/fairlead")
	run(t, program, "new", web, "--module", "example.com/web", "--group", "web.example.com", "--kind", "WebPage")
	config := clustertest.Start(t, cluster.Options{}).Config()
	for _, step := range []struct {
		reason string
		do     func()
		want   string // is in what is built
	}{
		{"as it was written", func() {}, "webpages.web.example.com"},
		{"with another kind", func() {
			run(t, program, "new", "kind", "--dir", web, "--group", "shop.example.org", "--kind", "Order")
		}, "orders.shop.example.org"},
		{"with a changed manifest", func() {
			edit(t, web, "deployment.yaml", "args: [", "env: [{name: COLOUR, value: '{{ none }}'}]\n          args: [")
		}, "COLOUR"},
		{"with other rights", func() { edit(t, web, "rbac.yaml", "- configmaps", "- secrets") }, "secrets"},
	} {
		step.do()
		fromKustomize, fromHelm := ofProject(t, web), ofChart(t, projectChart(t, web), nil)
		if text := fmt.Sprint(fromKustomize); !strings.Contains(text, step.want) {
			t.Fatalf("%s: no %s in\n%s", step.reason, step.want, text)
		}
		if diff := cmp.Diff(fromKustomize, fromHelm); diff != "" {
			t.Errorf("%s (-kustomize +helm):\n%s", step.reason, diff)
		}
		if problems := apply(t, config, fromHelm); len(problems) > 0 {
			t.Errorf("%s: %s", step.reason, strings.Join(problems, "\n"))
		}
	}
	lintChart(t, filepath.Join(web, "deploy", "chart"))
	got := map[string]int{}
	for name := range ofProject(t, web) {
		kind, _, _ := strings.Cut(name, " ")
		got[kind]++
	}
	want := map[string]int{
		"Namespace": 1, "CustomResourceDefinition": 2, "ServiceAccount": 1, "ClusterRole": 1, "ClusterRoleBinding": 1, "Role": 1,
		"RoleBinding": 1, "Service": 1, "Deployment": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	testProjectValues(t, projectChart(t, web))
}

// testProjectValues: each value arrives, and nothing else changes. The namespace is not made where helm has made it.
func testProjectValues(t *testing.T, c *chart.Chart) {
	t.Helper()
	all := values{
		"image": values{
			"repository": "registry.example.com:5000/web", "tag": "v1",
			"digest": "sha256:" + strings.Repeat("0", 64), "pullPolicy": "Always",
		},
		"imagePullSecrets": []any{"registry", "mirror"}, "replicas": 0, "extraArgs": []any{"--kubeconfig=/a b", "--x={}"},
		"resources": values{"limits": values{"memory": "1Gi"}},
	}
	for name := range c.Values {
		if _, ok := all[name]; !ok {
			t.Errorf("this test does not set %s", name)
		}
	}
	const name = "Deployment web-system/web"
	plain := ofChart(t, c, nil)
	want := plain[name]
	container := get(t, want, "spec", "template", "spec", "containers", 0).(values)
	if container["image"] != "web:dev" {
		t.Errorf("the image is %v", container["image"])
	}
	want["spec"].(values)["replicas"] = 0.0
	get(t, want, "spec", "template", "spec").(values)["imagePullSecrets"] = []any{
		values{"name": "registry"}, values{"name": "mirror"},
	}
	container["image"] = "registry.example.com:5000/web@sha256:" + strings.Repeat("0", 64)
	container["imagePullPolicy"], container["resources"] = "Always", all["resources"]
	container["args"] = append(container["args"].([]any), "--kubeconfig=/a b", "--x={}")
	if diff := cmp.Diff(plain, ofChart(t, c, all)); diff != "" {
		t.Errorf("with all values (-want +got):\n%s", diff)
	}
	tagged := ofChart(t, c, values{"image": values{"tag": "v2"}})[name]
	if got := get(t, tagged, "spec", "template", "spec", "containers", 0, "image"); got != "web:v2" {
		t.Errorf("with a tag the image is %v", got)
	}
	files, err := renderChart(c, nil, "web-system")
	if err != nil {
		t.Fatal(err)
	}
	if _, made := decoded(t, files)["Namespace /web-system"]; made {
		t.Error("the namespace of the release is made once more")
	}
	if notes := files["web/templates/NOTES.txt"]; !strings.Contains(notes, "kubectl label namespace web-system") {
		t.Errorf("the notes are\n%s", notes)
	}
}

// projectChart returns the chart of a project, as it is in its package.
func projectChart(t *testing.T, project string) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(filepath.Join(project, "deploy", "chart"))
	if err != nil {
		t.Fatal(err)
	}
	return packaged(t, c)
}

// ofChart returns what a chart makes of values, with the definitions.
func ofChart(t *testing.T, c *chart.Chart, v values) map[string]values {
	t.Helper()
	files, err := renderChart(c, v, "default")
	if err != nil {
		t.Fatal(err)
	}
	all := decoded(t, files)
	maps.Copy(all, definitions(t, c))
	return all
}

// ofProject returns what kustomize makes of a project.
func ofProject(t *testing.T, project string) map[string]values {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join(project, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, built)
}

// edit changes a manifest of a project.
func edit(t *testing.T, project, name, from, to string) {
	t.Helper()
	at := filepath.Join(project, "deploy", name)
	text, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(strings.Replace(string(text), from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}
