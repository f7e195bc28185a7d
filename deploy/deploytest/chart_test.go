package deploytest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	helmlint "helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/yaml"
)

type values = map[string]any

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir("../chart")
	if err != nil {
		t.Fatalf("cannot load the chart: %v", err)
	}
	return c
}

// render renders the chart as helm template does, in the namespace of the release. It returns files by name, without
// the definitions.
func render(t *testing.T, v values, release string) (map[string]string, error) {
	t.Helper()
	return renderChart(load(t), v, release)
}

func renderChart(c *chart.Chart, v values, release string) (map[string]string, error) {
	all, err := util.ToRenderValues(c, v,
		common.ReleaseOptions{Name: "fairlead", Namespace: release, Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// definitions returns the objects that helm installs first, and never updates.
func definitions(t *testing.T, c *chart.Chart) map[string]values {
	t.Helper()
	out := map[string]values{}
	for _, crd := range c.CRDObjects() {
		var obj values
		if err := yaml.UnmarshalStrict(crd.File.Data, &obj); err != nil {
			t.Fatalf("%s: %v", crd.Name, err)
		}
		out[id(obj)] = obj
	}
	return out
}

// packaged returns a chart after helm package.
func packaged(t *testing.T, c *chart.Chart) *chart.Chart {
	t.Helper()
	file, err := chartutil.Save(c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out, err := loader.LoadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rendered returns the objects of the chart with values, by kind, namespace and name.
func rendered(t *testing.T, v values) map[string]values {
	t.Helper()
	files, err := render(t, v, "default")
	if err != nil {
		t.Fatalf("cannot render the chart with %v: %v", v, err)
	}
	return decoded(t, files)
}

// decoded returns the objects in rendered files.
func decoded(t *testing.T, files map[string]string) map[string]values {
	t.Helper()
	out := map[string]values{}
	for file, text := range files {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		for doc := range strings.SplitSeq(text, "\n---\n") {
			var obj values
			if err := yaml.UnmarshalStrict([]byte(doc), &obj); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, doc)
			}
			if obj != nil {
				out[id(obj)] = obj
			}
		}
	}
	return out
}

func id(obj values) string {
	meta := obj["metadata"].(values)
	ns, _ := meta["namespace"].(string)
	return obj["kind"].(string) + " " + ns + "/" + meta["name"].(string)
}

// objects returns the objects that kustomize has built, in the same form.
func objects(t *testing.T, built resmap.ResMap) map[string]values {
	t.Helper()
	out := map[string]values{}
	for _, r := range built.Resources() {
		raw, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var obj values
		if err := yaml.UnmarshalStrict(raw, &obj); err != nil {
			t.Fatal(err)
		}
		out[id(obj)] = obj
	}
	return out
}

// TestChart: the chart renders the objects that kustomize builds.
func TestChart(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(objects(t, build(t)), rendered(t, nil)); diff != "" {
		t.Errorf("default values (-deploy +chart):\n%s", diff)
	}
	if diff := cmp.Diff(objects(t, buildShared(t)), rendered(t, values{"shards": true})); diff != "" {
		t.Errorf("with shards (-deploy +chart):\n%s", diff)
	}
}

// TestChartLint: helm lint reports only that there is no icon.
func TestChartLint(t *testing.T) {
	t.Parallel()
	lintChart(t, "../chart")
}

func lintChart(t *testing.T, dir string) {
	t.Helper()
	for _, m := range helmlint.RunAll(dir, nil, "default").Messages {
		if !strings.Contains(m.Error(), "icon is recommended") {
			t.Error(m.Error())
		}
	}
}

// TestChartDefinitions: the chart installs all definitions of the API, also after it was packaged. The definitions lie
// outside the chart in the repository.
func TestChartDefinitions(t *testing.T) {
	t.Parallel()
	got := slices.Sorted(maps.Keys(definitions(t, packaged(t, load(t)))))
	want := []string{"CustomResourceDefinition /operations.fairlead.io", "CustomResourceDefinition /webhooks.fairlead.io"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

// everything sets each value to something other than its default.
func everything() values {
	return values{
		"namespace": values{"name": "operations"},
		"image": values{
			"repository": "registry.example.com:5000/fairlead",
			"digest":     "sha256:" + strings.Repeat("0", 64), "pullPolicy": "Always",
		},
		"imagePullSecrets": []any{"registry"}, "shards": true, "replicas": 5, "namespaces": []any{"default", "kube-public"},
		"tls": values{"secretName": "certificate"}, "audience": "https://operations.example.com",
		"publicURL": "https://operations.example.com", "extraArgs": []any{"--allow-target=10.1.0.0/16", "--workers=5"},
		"drainSeconds":      90,
		"env":               []any{values{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector.tracing:4318"}},
		"resources":         values{"limits": values{"memory": "1Gi"}, "requests": values{"cpu": "1", "memory": "128Mi"}},
		"nodeSelector":      values{"disk": "ssd"},
		"tolerations":       []any{values{"key": "batch", "operator": "Exists"}},
		"priorityClassName": "system-cluster-critical", "podAnnotations": values{"team": "a"},
		"serviceAccount": values{"annotations": values{"role": "b"}}, "podDisruptionBudget": values{"enabled": true},
		"networkPolicy": values{
			"enabled": true, "metricsNamespace": "prometheus", "tracesNamespace": "tracing",
			"apiServer": values{"cidrs": []any{"10.0.0.1/32"}, "ports": []any{6443}},
			"receivers": []any{values{"cidr": "192.0.2.0/24"}},
		},
	}
}

// TestChartValues: each value has its documented effect.
func TestChartValues(t *testing.T) {
	t.Parallel()
	all := everything()
	for name := range load(t).Values {
		if _, ok := all[name]; !ok {
			t.Errorf("this test does not set %s", name)
		}
	}
	got := rendered(t, all)
	pod := get(t, got["Deployment operations/fairlead-controller"], "spec", "template", "spec").(values)
	container := pod["containers"].([]any)[0].(values)
	args := container["args"].([]any)
	for _, want := range []any{
		"--shards", "--audience=https://operations.example.com", "--public-url=https://operations.example.com",
		"--namespace=default", "--namespace=kube-public", "--allow-target=10.1.0.0/16", "--workers=5",
		"--drain=90s",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("%s is not among the arguments %v", want, args)
		}
	}
	policy := got["NetworkPolicy operations/fairlead-controller"]
	for _, each := range []struct{ what, got, want any }{
		{"replicas", get(t, got["Deployment operations/fairlead-controller"], "spec", "replicas"), 5.0},
		{"grace", pod["terminationGracePeriodSeconds"], 122.0},
		{"those that stay", get(t, got["PodDisruptionBudget operations/fairlead-controller"], "spec", "minAvailable"), 4.0},
		{"image", container["image"], "registry.example.com:5000/fairlead@sha256:" + strings.Repeat("0", 64)},
		{"policy", container["imagePullPolicy"], "Always"},
		{"pull secrets", pod["imagePullSecrets"], []any{values{"name": "registry"}}},
		{"resources", container["resources"], all["resources"]},
		{"node", pod["nodeSelector"], all["nodeSelector"]},
		{"tolerations", pod["tolerations"], all["tolerations"]},
		{"priority", pod["priorityClassName"], "system-cluster-critical"},
		{"certificate", get(t, pod["volumes"].([]any)[0].(values), "secret", "secretName"), "certificate"},
		{
			"annotations", get(t, got["Deployment operations/fairlead-controller"], "spec", "template", "metadata",
				"annotations"),
			all["podAnnotations"],
		},
		{
			"account", get(t, got["ServiceAccount operations/fairlead-controller"], "metadata", "annotations"),
			values{"role": "b"},
		},
		{"receivers", get(t, policy, "spec", "egress", 2, "to", 0, "ipBlock", "cidr"), "192.0.2.0/24"},
		{"collector", get(t, policy, "spec", "egress", 3, "to", 0, "namespaceSelector", "matchLabels"), values{
			"kubernetes.io/metadata.name": "tracing",
		}},
		{"environment", container["env"].([]any)[1], all["env"].([]any)[0]},
		{"API server", get(t, policy, "spec", "egress", 1), values{
			"to":    []any{values{"ipBlock": values{"cidr": "10.0.0.1/32"}}},
			"ports": []any{values{"protocol": "TCP", "port": 6443.0}},
		}},
	} {
		if diff := cmp.Diff(each.want, each.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", each.what, diff)
		}
	}
	// Only single namespaces: rights to their objects are granted only there.
	names := slices.Sorted(maps.Keys(got))
	for name, want := range map[string]bool{
		"ClusterRoleBinding /fairlead-controller": false, "ClusterRoleBinding /fairlead-controller-reviews": true,
		"RoleBinding default/fairlead-controller-objects": true, "RoleBinding kube-public/fairlead-controller-objects": true,
	} {
		if slices.Contains(names, name) != want {
			t.Errorf("%s: is there: %t, among %v", name, !want, names)
		}
	}
}

// TestChartNamespace: the chart does not create the namespace in which helm stores the release.
func TestChartNamespace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		release string
		values  values
		want    bool
	}{
		{"default", nil, true},
		{"fairlead-system", nil, false},
		{"default", values{"namespace": values{"create": false}}, false},
	} {
		files, err := render(t, c.values, c.release)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(files["fairlead/templates/namespace.yaml"], "kind: Namespace"); got != c.want {
			t.Errorf("in %s with %v the namespace is created: %t", c.release, c.values, got)
		}
		if got := strings.Contains(files["fairlead/templates/NOTES.txt"], "kubectl label"); got != (c.release != "default") {
			t.Errorf("in %s the notes are\n%s", c.release, files["fairlead/templates/NOTES.txt"])
		}
	}
}

// TestChartRefuses: invalid values are refused, by name.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	for reason, v := range map[string]values{
		"replica":           {"replica": 3},
		"replicas":          {"replicas": 0},
		"shards":            {"shards": "yes"},
		"namespace":         {"namespace": values{"name": "Fairlead"}},
		"namespaces":        {"namespaces": "team-a"},
		"image/tag":         {"image": values{"tag": "latest"}},
		"image/digest":      {"image": values{"digest": "sha256:0"}},
		"image/pullPolicy":  {"image": values{"pullPolicy": "Sometimes"}},
		"tls/secretName":    {"tls": values{"secretName": ""}},
		"audience":          {"audience": ""},
		"publicURL":         {"publicURL": "http://operations.example.com"},
		"extraArgs":         {"extraArgs": []any{"--insecure-no-auth"}},
		"env/":              {"env": []any{values{"name": "NAMESPACE", "value": "x"}}},
		"networkPolicy/":    {"networkPolicy": values{"receivers": []any{values{"cidr": "everywhere"}}}},
		"podAnnotations":    {"podAnnotations": values{"count": 1}},
		"imagePullSecrets/": {"imagePullSecrets": []any{values{"name": "registry"}}},
	} {
		if _, err := render(t, v, "default"); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v: got %v", v, err)
		}
	}
}

// get returns the field of an object at a path.
func get(t *testing.T, obj values, path ...any) any {
	t.Helper()
	var v any = obj
	for _, step := range path {
		switch s := step.(type) {
		case string:
			v = v.(values)[s]
		case int:
			v = v.([]any)[s]
		}
	}
	return v
}
