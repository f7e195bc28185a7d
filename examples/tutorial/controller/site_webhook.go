package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"

	webv1alpha1 "example.com/sites/api/web/v1alpha1"
)

// declareSiteWebhooks declares the webhooks. While no replica serves them, no Site can be created or changed;
// with admission.FailOpen the API server would store it unchecked. The client of the runtime reads other objects.
func declareSiteWebhooks(_ *fairlead.Runtime, h *admission.Hooks) {
	admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed}, defaultSite)
	admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed}, validateSite)
}

// defaultSite sets the host of r.Object. The API server may call it more than once for an object.
func defaultSite(_ context.Context, r *admission.Request[webv1alpha1.Site]) error {
	if r.Object.Spec.Host == "" {
		r.Object.Spec.Host = fmt.Sprintf("%s.%s.example.com", r.Object.Name, r.Object.Namespace)
	}
	return nil
}

// validateSite returns an error if r.Object must not be stored. r.Old is nil for a new object.
func validateSite(_ context.Context, r *admission.Request[webv1alpha1.Site]) error {
	if r.Old != nil && r.Old.Spec.Host != "" && r.Old.Spec.Host != r.Object.Spec.Host {
		return field.Forbidden(field.NewPath("spec", "host"), "the host of a Site cannot change")
	}
	return nil
}
