package controller

import (
	"context"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"

	webv1 "example.com/sites/api/web/v1"
	webv1alpha1 "example.com/sites/api/web/v1alpha1"
)

// declareSiteV1 declares the conversion between v1 and v1alpha1, the stored version.
func declareSiteV1(_ *fairlead.Runtime, h *admission.Hooks) {
	admission.Convert(h, siteFromV1, siteToV1)
}

// siteFromV1 converts to v1alpha1. The name of Files is Config there.
func siteFromV1(_ context.Context, in *webv1.Site) (*webv1alpha1.Site, error) {
	return &webv1alpha1.Site{
		TypeMeta:   in.TypeMeta,
		ObjectMeta: in.ObjectMeta,
		Spec: webv1alpha1.SiteSpec{
			Image: in.Spec.Image, Replicas: in.Spec.Replicas, Config: in.Spec.Files, Port: in.Spec.Port, Host: in.Spec.Host,
		},
		Status: webv1alpha1.SiteStatus(in.Status),
	}, nil
}

// siteToV1 converts to v1.
func siteToV1(_ context.Context, in *webv1alpha1.Site) (*webv1.Site, error) {
	return &webv1.Site{
		TypeMeta:   in.TypeMeta,
		ObjectMeta: in.ObjectMeta,
		Spec: webv1.SiteSpec{
			Image: in.Spec.Image, Replicas: in.Spec.Replicas, Files: in.Spec.Config, Port: in.Spec.Port, Host: in.Spec.Host,
		},
		Status: webv1.SiteStatus(in.Status),
	}, nil
}
