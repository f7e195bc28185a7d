package controller

import (
	"context"
	"testing"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission/admissiontest"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"

	"example.com/sites/api"
	webv1 "example.com/sites/api/web/v1"
	webv1alpha1 "example.com/sites/api/web/v1alpha1"
)

// No object loses data in a conversion to the other version and back.
func TestSiteV1RoundTrip(t *testing.T) {
	clustertest.RoundTrip(t, siteFromV1, siteToV1)
}

// The API server converts a stored object to v1.
func TestSiteV1(t *testing.T) {
	env.InstallCRDs(t, clustertest.CRDFiles("../deploy/crds"))
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	hooks := admissiontest.Start(t, env.Config(t), declareSiteV1, fairlead.WithScheme(scheme))
	user := userOf(t)
	stored := &webv1alpha1.Site{}
	clustertest.Decode(t, "../samples/site.yaml", stored)
	stored.Namespace = hooks.Namespace
	if err := user.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the object as v1", func(ctx context.Context) error {
		return user.Get(ctx, client.KeyOf(stored), &webv1.Site{})
	})
}
