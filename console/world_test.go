package console_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed/consolebed"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newWorld returns a world on the model of an API server, for tests that need no rights of users.
func newWorld(t *testing.T, change func(*console.Options)) *consolebed.World {
	t.Helper()
	resources := apiserver.DefaultResources()
	for _, crd := range v1alpha1.CRDs() {
		names := crd.Spec.Names
		resources = append(resources, apiserver.Resource{
			Group: crd.Spec.Group, Version: v1alpha1.GroupVersion.Version, Resource: names.Plural, Kind: names.Kind,
			Singular: names.Singular, ShortNames: names.ShortNames, Namespaced: true, Subresources: []string{"status"},
		})
	}
	server, err := apiserver.New(apiserver.Options{Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return consolebed.New(t, server.Config(), "prod", change)
}
