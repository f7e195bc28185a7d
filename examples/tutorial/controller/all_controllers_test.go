package controller

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/rights"

	"example.com/sites/api"
)

// update is set by make manifests.
var update = flag.Bool("update", false, "write deploy/rbac.yaml")

// env is a real kube-apiserver with etcd. No other controllers run there, such as that of Deployments.
var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }

// deploy/rbac.yaml has the rights that the program declares.
func TestRights(t *testing.T) {
	want, err := rights.YAML(role(t))
	if err != nil {
		t.Fatal(err)
	}
	clustertest.CheckFile(t, "../deploy/rbac.yaml", want, *update)
}

// The API server accepts the files of deploy/.
func TestDeploy(t *testing.T) { env.Apply(t, "../deploy") }

// role returns the RBAC objects that the program needs.
func role(t *testing.T) []runtime.Object {
	t.Helper()
	env.InstallCRDs(t, clustertest.CRDFiles("../deploy/crds"))
	rt, err := New(env.Config(t), InCluster()...)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Client().Close() // it does not run
	ServeWebhooks(rt, true)
	//fairlead:new webhooks
	objects, err := rights.Manifests(rt.Client().Mapper(), Account, rt.Rights())
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// start runs the controllers in a new namespace until the test ends, as their service account. A request without a
// right fails the test. user is a client with all rights.
func start(t *testing.T) (user *client.Client, namespace string) {
	t.Helper()
	cfg := env.Limited(t, Account.User(), role(t)...)
	namespace = env.Namespace(t)
	rt, err := New(cfg, append(InCluster(),
		fairlead.WithSource(cache.Namespaces(namespace)), fairlead.WithLogger(clustertest.Logger(t)))...)
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Run(t, rt)
	return userOf(t), namespace
}

// userOf returns a client with all rights.
func userOf(t *testing.T) *client.Client {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	user, err := client.New(client.Options{Config: env.Config(t), Scheme: scheme, FieldOwner: "user"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Close)
	return user
}
