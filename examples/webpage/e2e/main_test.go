// Package e2e_test runs the program webpage on a real control plane.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/examples/internal/kubetest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var (
	env     clustertest.Env
	webpage program.Program
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(webpage.Main(env.Main(m))) }

// The operator makes the children of a page one after the other, and deletes them with the page.
func TestAPage(t *testing.T) {
	t.Parallel()
	env.InstallCRDs(t, clustertest.CRDFiles("../webpages.yaml"))
	webpage.Start(t, program.Options{Config: env.Config(t), Env: []string{"METRICS=127.0.0.1:0"}})
	user := kubetest.New(t, env.Config(t), env.Namespace(t))
	page := user.Object("example.fairlead.io/v1", "WebPage", "hello")
	page.Object["spec"] = map[string]any{"html": "<h1>Hello</h1>"}
	user.Create(page)
	says := func(ready, url string) {
		t.Helper()
		user.Await("Ready is "+ready+" at "+url, page, func(content map[string]any) bool {
			got, _, _ := unstructured.NestedString(content, "status", "url")
			return kubetest.HasCondition(content, "Ready", ready, "") && got == url
		})
	}
	exists := func(map[string]any) bool { return true }

	server := user.Object("apps/v1", "Deployment", "hello")
	user.Await("there is a server", server, exists)
	says("Unknown", "")
	service := user.Object("v1", "Service", "hello")
	if user.Exists(service) {
		t.Error("there is a service before the server is ready")
	}
	user.ModifyStatus(server, func(content map[string]any) { // as the Deployment controller does, which is not there
		content["status"] = map[string]any{
			"observedGeneration": server.GetGeneration(), "replicas": int64(1), "updatedReplicas": int64(1),
			"readyReplicas": int64(1), "availableReplicas": int64(1),
		}
	})
	user.Await("there is a service", service, exists)
	says("True", "")

	expose := func(yes bool) {
		user.Modify(page, func(content map[string]any) { content["spec"].(map[string]any)["exposed"] = yes })
	}
	ingress := user.Object("networking.k8s.io/v1", "Ingress", "hello")
	expose(true)
	user.Await("there is an ingress", ingress, exists)
	says("True", "http://hello."+user.Namespace()+".example.com")
	expose(false)
	user.AwaitGone(ingress)
	says("True", "")

	user.Delete(page)
	user.AwaitGone(page)
	user.AwaitGone(user.Object("v1", "ConfigMap", "hello"))
}
