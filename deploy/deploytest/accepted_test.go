package deploytest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAccepted: a real API server accepts all objects of kustomize and of the chart without a warning. It also admits
// the pods of the Deployment, by the namespace's pod security standard.
func TestAccepted(t *testing.T) {
	t.Parallel()
	// The objects of the cluster have fixed names, so the test needs a cluster of its own.
	config := clustertest.Start(t, cluster.Options{}).Config()
	for _, c := range []struct {
		name    string
		objects map[string]values
	}{
		{"the definitions", definitions(t, load(t))},
		{"deploy", objects(t, build(t))},
		{"the chart", rendered(t, nil)}, // over the existing objects
		{"the chart with shards", rendered(t, values{"shards": true})},
		{"the chart with all its values", rendered(t, everything())},
	} {
		if problems := apply(t, config, c.objects); len(problems) > 0 {
			t.Errorf("%s: %s", c.name, strings.Join(problems, "\n"))
		}
	}
	// Invalid objects are reported, so nothing is accepted by mistake.
	bad := rendered(t, nil)
	get(t, bad["Deployment fairlead-system/fairlead-controller"], "spec", "template",
		"spec").(values)["hostNetwork"] = true
	bad["PodDisruptionBudget fairlead-system/fairlead-controller"]["spec"].(values)["minAvailable"] = "some"
	if problems := apply(t, config, bad); len(problems) != 3 { // the budget, the pod, and a warning about the Deployment
		t.Errorf("for a pod of the host and an invalid budget the problems are %v", problems)
	}
}

// apply applies objects in the order of helm, and checks whether a pod of the Deployment would be admitted.
func apply(t *testing.T, config *rest.Config, objects map[string]values) (problems []string) {
	t.Helper()
	var warnings strings.Builder
	c, err := client.New(client.Options{
		Config: config, Scheme: runtime.NewScheme(), FieldOwner: "deploytest",
		Logger: slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	var all []*unstructured.Unstructured
	for _, obj := range objects {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(obj)}
		all = append(all, u)
		if u.GetKind() == "Deployment" {
			pod := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(get(t, obj, "spec", "template").(values))}
			pod.SetAPIVersion("v1")
			pod.SetKind("Pod")
			pod.SetName("one-of-them")
			pod.SetNamespace(u.GetNamespace())
			all = append(all, pod)
		}
	}
	first := []string{"Namespace", "ServiceAccount", "ClusterRole", "Role"} // and pods after their account
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(uint(slices.Index(first, a.GetKind())), uint(slices.Index(first, b.GetKind())))
	})
	for _, u := range all {
		opts := []client.WriteOption{client.Force()}
		if u.GetKind() == "Pod" {
			opts = append(opts, client.DryRun())
		}
		if err := c.Apply(ctx, u, opts...); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", u.GetKind(), err))
		}
	}
	if warnings.Len() > 0 {
		problems = append(problems, warnings.String())
	}
	return problems
}
