package controller

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission/admissiontest"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"

	"example.com/sites/api"
	webv1alpha1 "example.com/sites/api/web/v1alpha1"
)

// The API server calls the webhooks of Site.
func TestSiteWebhooks(t *testing.T) {
	env.InstallCRDs(t, clustertest.CRDFiles("../deploy/crds"))
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	hooks := admissiontest.Start(t, env.Config(t), declareSiteWebhooks, fairlead.WithScheme(scheme))
	user, ctx := userOf(t), t.Context()
	site := &webv1alpha1.Site{}
	clustertest.Decode(t, "../samples/site.yaml", site)
	site.Namespace, site.Spec.Host = hooks.Namespace, ""
	if err := user.Create(ctx, site); err != nil {
		t.Fatal(err)
	}
	if want := "sample." + hooks.Namespace + ".example.com"; site.Spec.Host != want {
		t.Errorf("the host is %q, want %q", site.Spec.Host, want)
	}
	move := func(site *webv1alpha1.Site) error { site.Spec.Host = "other.example.com"; return nil }
	if err := client.Modify(ctx, user, site, move); !apierrors.IsInvalid(err) {
		t.Errorf("a change of the host: %v", err)
	}
}
