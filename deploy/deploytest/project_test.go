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

// same are the values with which the chart of a project renders what kustomize builds.
var same = values{"namespace": values{"name": "web-system"}, "crds": values{"keep": false}}

// TestProject builds the deploy/ of a project of fairlead new with kustomize and with helm. Both produce the same
// objects, also after a kind, a webhook, a version and a file were added or changed. A real API server accepts them.
// Each value of the chart has its effect.
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
		want   string // contained in the objects
	}{
		{"as it was written", func() {}, "webpages.web.example.com"},
		{"with another kind", func() {
			run(t, program, "new", "kind", "--dir", web, "--group", "shop.example.org", "--kind", "Order")
		}, "orders.shop.example.org"},
		{"with a webhook", func() {
			run(t, program, "new", "webhook", "--dir", web, "--group", "shop.example.org", "--kind", "Order")
		}, "web-webhook"},
		{"with a version", func() {
			run(t, program, "new", "version", "--dir", web, "--group", "shop.example.org", "--kind", "Order", "--version", "v1")
		}, "/convert/order.shop.example.org"},
		{"with a file that was added", func() {
			text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: added, namespace: web-system}\n"
			if err := os.WriteFile(filepath.Join(web, "deploy", "added.yaml"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			edit(t, web, "kustomization.yaml", "  - rbac.yaml\n", "  - rbac.yaml\n  - added.yaml\n")
		}, "added"},
		{"with a changed manifest", func() {
			edit(t, web, "deployment.yaml", "env:\n", "env:\n            - {name: COLOUR, value: '{{ none }}'}\n")
		}, "COLOUR"},
		{"with other rights", func() { edit(t, web, "rbac.yaml", "- configmaps", "- secrets") }, "secrets"},
	} {
		step.do()
		fromKustomize, fromHelm := ofProject(t, web), ofChart(t, projectChart(t, web), same)
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
	lintChart(t, filepath.Join(web, "chart"))
	got := map[string]int{}
	for name := range ofProject(t, web) {
		kind, _, _ := strings.Cut(name, " ")
		got[kind]++
	}
	want := map[string]int{
		"Namespace": 1, "CustomResourceDefinition": 2, "ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 1,
		"Role":        1,
		"RoleBinding": 1, "Service": 2, "Deployment": 1, "NetworkPolicy": 2, "ConfigMap": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	testProjectDeployment(t, ofProject(t, web))
	testProjectValues(t, projectChart(t, web))
	testProjectNamespace(t, projectChart(t, web))
	edit(t, web, "kustomization.yaml", "namespace: web-system", "namespace: team-a")
	other := ofChart(t, projectChart(t, web), values{"namespace": values{"name": "team-a"}, "crds": same["crds"]})
	if diff := cmp.Diff(ofProject(t, web), other); diff != "" {
		t.Errorf("in another namespace (-kustomize +helm):\n%s", diff)
	}
}

// testProjectDeployment: the program serves its pages by HTTPS with authentication, and the policies, Services and
// probes name the ports of its container.
func testProjectDeployment(t *testing.T, built map[string]values) {
	t.Helper()
	const name = " web-system/web"
	pod := get(t, built["Deployment"+name], "spec", "template", "spec", "containers", 0).(values)
	if diff := cmp.Diff([]any{"--in-cluster", "--listen=:8443"}, pod["args"]); diff != "" {
		t.Errorf("the arguments (-want +got):\n%s", diff)
	}
	ports := map[any]bool{}
	for _, p := range pod["ports"].([]any) {
		ports[p.(values)["name"]] = true
	}
	if diff := cmp.Diff(map[any]bool{"pages": true, "webhooks": true}, ports); diff != "" {
		t.Errorf("the ports (-want +got):\n%s", diff)
	}
	labels := get(t, built["Deployment"+name], "spec", "template", "metadata", "labels")
	for id, want := range map[string]struct {
		selector []any
		port     []any
	}{
		"Service web-system/web-metrics": {[]any{"spec", "selector"}, []any{"spec", "ports", 0, "targetPort"}},
		"Service web-system/web-webhook": {[]any{"spec", "selector"}, []any{"spec", "ports", 0, "targetPort"}},
		"NetworkPolicy" + name: {
			[]any{"spec", "podSelector", "matchLabels"},
			[]any{"spec", "ingress", 0, "ports", 0, "port"},
		},
		"NetworkPolicy web-system/web-webhook": {
			[]any{"spec", "podSelector", "matchLabels"},
			[]any{"spec", "ingress", 0, "ports", 0, "port"},
		},
	} {
		if diff := cmp.Diff(labels, get(t, built[id], want.selector...)); diff != "" {
			t.Errorf("%s selects other pods (-pods +selected):\n%s", id, diff)
		}
		if port := get(t, built[id], want.port...); !ports[port] {
			t.Errorf("%s names port %v", id, port)
		}
	}
	if from := get(t, built["NetworkPolicy"+name], "spec", "ingress", 0, "from"); len(from.([]any)) != 1 {
		t.Errorf("the pages are open to %v", from)
	}
}

// testProjectValues: each value has its effect, and changes nothing else.
func testProjectValues(t *testing.T, c *chart.Chart) {
	t.Helper()
	all := values{
		"namespace": same["namespace"], "crds": values{"install": false},
		"image": values{
			"repository": "registry.example.com:5000/web", "tag": "v1",
			"digest": "sha256:" + strings.Repeat("0", 64), "pullPolicy": "Always",
		},
		"imagePullSecrets": []any{"registry", "mirror"}, "replicas": 0, "extraArgs": []any{"--kubeconfig=/a b", "--x={}"},
		"resources":    values{"limits": values{"memory": "1Gi"}},
		"env":          []any{values{"name": "A", "value": "b"}},
		"nodeSelector": values{"disk": "ssd"}, "tolerations": []any{values{"operator": "Exists"}},
		"affinity":                  values{"nodeAffinity": values{}},
		"topologySpreadConstraints": []any{values{"maxSkew": 1.0}}, "priorityClassName": "high",
		"podAnnotations": values{"a": "b"}, "serviceAccount": values{"annotations": values{"role": "web"}},
		"networkPolicy": values{"enabled": false}, "webhookPort": 10443,
	}
	for name := range c.Values {
		if _, ok := all[name]; !ok {
			t.Errorf("this test does not set %s", name)
		}
	}
	want := ofChart(t, c, same)
	for id := range want {
		if strings.HasPrefix(id, "CustomResourceDefinition ") || strings.HasPrefix(id, "NetworkPolicy ") {
			delete(want, id)
		}
	}
	want["ServiceAccount web-system/web"]["metadata"].(values)["annotations"] = values{"role": "web"}
	deployment := want["Deployment web-system/web"]
	container := get(t, deployment, "spec", "template", "spec", "containers", 0).(values)
	if container["image"] != "web:dev" {
		t.Errorf("the image is %v", container["image"])
	}
	deployment["spec"].(values)["replicas"] = 0.0
	get(t, deployment, "spec", "template", "metadata").(values)["annotations"] = values{"a": "b"}
	pod := get(t, deployment, "spec", "template", "spec").(values)
	pod["imagePullSecrets"] = []any{values{"name": "registry"}, values{"name": "mirror"}}
	for _, name := range []string{
		"nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName",
	} {
		pod[name] = all[name]
	}
	container["image"] = "registry.example.com:5000/web@sha256:" + strings.Repeat("0", 64)
	container["imagePullPolicy"], container["resources"] = "Always", all["resources"]
	container["args"] = append(container["args"].([]any), "--kubeconfig=/a b", "--x={}")
	container["env"] = append(container["env"].([]any), values{"name": "A", "value": "b"},
		values{"name": "WEBHOOK_ADDRESS", "value": ":10443"})
	get(t, container, "ports", 1).(values)["containerPort"] = 10443.0
	if diff := cmp.Diff(want, ofChart(t, c, all)); diff != "" {
		t.Errorf("with all values (-want +got):\n%s", diff)
	}
	tagged := ofChart(t, c, values{"namespace": same["namespace"], "image": values{"tag": "v2"}})
	if got := get(t, tagged["Deployment web-system/web"], "spec", "template", "spec", "containers", 0,
		"image"); got != "web:v2" {
		t.Errorf("with a tag the image is %v", got)
	}
	for id, obj := range tagged {
		if strings.HasPrefix(id, "CustomResourceDefinition ") &&
			get(t, obj, "metadata", "annotations", "helm.sh/resource-policy") != "keep" {
			t.Errorf("%s is removed with the release", id)
		}
	}
}

// testProjectNamespace: everything is in the namespace of the release, or in the one of the value. The chart creates
// only the latter.
func testProjectNamespace(t *testing.T, c *chart.Chart) {
	t.Helper()
	for _, tc := range []struct {
		reason        string
		v             values
		release, want string
		created       bool
	}{
		{"the default", nil, "team-a", "team-a", false},
		{"the same by name", values{"namespace": values{"name": "team-a"}}, "team-a", "team-a", false},
		{"another one", values{"namespace": values{"name": "team-b"}}, "team-a", "team-b", true},
		{
			"another one that exists",
			values{"namespace": values{"name": "team-b", "create": false}},
			"team-a", "team-b",
			false,
		},
	} {
		files, err := renderChart(c, tc.v, tc.release)
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(files); strings.Contains(text, "web-system") {
			t.Errorf("%s: web-system is in\n%s", tc.reason, text)
		}
		all := decoded(t, files)
		for id, obj := range all {
			if ns, ok := obj["metadata"].(values)["namespace"]; ok && ns != tc.want {
				t.Errorf("%s: %s is in %v", tc.reason, id, ns)
			}
		}
		if _, created := all["Namespace /"+tc.want]; created != tc.created {
			t.Errorf("%s: the namespace is created: %v", tc.reason, created)
		}
		for id, path := range map[string][]any{
			"ClusterRoleBinding /web": {"subjects", 0, "namespace"},
			"CustomResourceDefinition /orders.shop.example.org": {
				"spec", "conversion", "webhook", "clientConfig", "service",
				"namespace",
			},
		} {
			if ns := get(t, all[id], path...); ns != tc.want {
				t.Errorf("%s: %s names the namespace %v", tc.reason, id, ns)
			}
		}
		notes := files["web/templates/NOTES.txt"]
		if labels := strings.Contains(notes,
			"kubectl label namespace "+tc.want+" pod-security"); labels != (tc.release == tc.want) {
			t.Errorf("%s: the notes are\n%s", tc.reason, notes)
		}
	}
}

// projectChart returns the packaged chart of a project.
func projectChart(t *testing.T, project string) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(filepath.Join(project, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	return packaged(t, c)
}

// ofChart returns the objects of a chart with values, with the definitions.
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

// ofProject returns the objects that kustomize builds of a project.
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
