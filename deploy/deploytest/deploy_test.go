package deploytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	namespace = "fairlead-system"
	name      = "fairlead-controller"
)

func build(t *testing.T) resmap.ResMap {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "..")
	if err != nil {
		t.Fatalf("kustomize build deploy: %v", err)
	}
	return built
}

// at returns the field of a built resource at a path.
func at(t *testing.T, built resmap.ResMap, kind string, path ...any) any {
	t.Helper()
	for _, r := range built.Resources() {
		if r.GetKind() != kind || r.GetName() != name {
			continue
		}
		m, err := r.Map()
		if err != nil {
			t.Fatal(err)
		}
		var v any = m
		for _, step := range path {
			switch s := step.(type) {
			case string:
				v = v.(map[string]any)[s]
			case int:
				v = v.([]any)[s]
			}
		}
		return v
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

func TestBuild(t *testing.T) {
	t.Parallel()
	built := build(t)
	got := map[string]int{}
	for _, r := range built.Resources() {
		got[r.GetKind()]++
		switch r.GetKind() {
		case "Namespace", "ClusterRole", "ClusterRoleBinding":
		default:
			if r.GetNamespace() != namespace {
				t.Errorf("%s %s is in namespace %q", r.GetKind(), r.GetName(), r.GetNamespace())
			}
		}
	}
	want := map[string]int{
		"Namespace": 1, "ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 2, "Role": 1, "RoleBinding": 1,
		"Deployment": 1, "Service": 1, "PodDisruptionBudget": 1, "NetworkPolicy": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// TestSelectors: selectors and port names of other objects match the pods of the Deployment.
func TestSelectors(t *testing.T) {
	t.Parallel()
	built := build(t)
	labels := at(t, built, "Deployment", "spec", "template", "metadata", "labels")
	for kind, path := range map[string][]any{
		"Deployment":          {"spec", "selector", "matchLabels"},
		"Service":             {"spec", "selector"},
		"PodDisruptionBudget": {"spec", "selector", "matchLabels"},
		"NetworkPolicy":       {"spec", "podSelector", "matchLabels"},
	} {
		if diff := cmp.Diff(labels, at(t, built, kind, path...)); diff != "" {
			t.Errorf("%s selects other pods (-pods +selected):\n%s", kind, diff)
		}
	}
	port := at(t, built, "Deployment", "spec", "template", "spec", "containers", 0, "ports", 0, "name")
	if got := at(t, built, "Service", "spec", "ports", 0, "targetPort"); got != port {
		t.Errorf("the Service has the port %v, the container has %v", got, port)
	}
	if got := at(t, built, "NetworkPolicy", "spec", "ingress", 0, "ports", 0, "port"); got != port {
		t.Errorf("the NetworkPolicy opens port %v, the container has %v", got, port)
	}
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
		if got := at(t, built, kind, "subjects", 0, "namespace"); got != namespace {
			t.Errorf("%s is for a service account of %v", kind, got)
		}
	}
	if got := at(t, built, "Deployment", "spec", "replicas"); got.(int) <= at(t, built, "PodDisruptionBudget", "spec",
		"minAvailable").(int) {
		t.Errorf("with %v replicas the PodDisruptionBudget blocks the draining of nodes", got)
	}
}

// TestServed: the HTTP API requires TLS, and tokens with an audience of its own. Metrics and probes are on another
// port.
func TestServed(t *testing.T) {
	t.Parallel()
	built := build(t)
	container := at(t, built, "Deployment", "spec", "template", "spec", "containers", 0).(map[string]any)
	ports := map[string]any{}
	for _, each := range container["ports"].([]any) {
		port := each.(map[string]any)
		ports[port["name"].(string)] = port["containerPort"]
	}
	flags := map[string]string{}
	for _, arg := range container["args"].([]any) {
		flag, value, _ := strings.Cut(arg.(string), "=")
		flags[flag] = value
	}
	mount := container["volumeMounts"].([]any)[0].(map[string]any)["mountPath"].(string)
	for flag, want := range map[string]string{
		"--listen": fmt.Sprint(":", ports["http"]), "--metrics-listen": fmt.Sprint(":", ports["metrics"]),
		"--audience":      "fairlead",
		"--tls-cert-file": mount + "/tls.crt", "--tls-key-file": mount + "/tls.key",
		"--public-url": "https://" + name + "." + namespace + ".svc",
	} {
		if flags[flag] != want {
			t.Errorf("%s is %q, not %q", flag, flags[flag], want)
		}
	}
	if _, ok := flags["--insecure-http"]; ok {
		t.Error("plain HTTP is served")
	}
	for _, probe := range []string{"readinessProbe", "livenessProbe"} {
		if got := container[probe].(map[string]any)["httpGet"].(map[string]any)["port"]; got != "metrics" {
			t.Errorf("%s asks port %v", probe, got)
		}
	}
}
