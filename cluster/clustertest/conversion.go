package clustertest

import (
	"context"
	"encoding/json"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// localWebhooks is the default address of package admission.
const localWebhooks = "https://127.0.0.1:9443"

// localized returns the JSON of a definition for the local machine. A Service cannot reach local programs, so the
// Service of a conversion webhook is replaced by a URL with the same path. If the API server already has a URL, which
// the program has written, that one is used; else the address of package admission. The API server converts no objects
// before the program has filled in the caBundle.
func (d *definition) localized(ctx context.Context, api *apiextensions.ApiextensionsV1Client) ([]byte, error) {
	at := webhookOf(&d.crd)
	if at == nil || at.Service == nil {
		return d.raw, nil
	}
	path := ""
	if at.Service.Path != nil {
		path = *at.Service.Path
	}
	local := map[string]any{"url": localWebhooks + path}
	if at.CABundle != nil {
		local["caBundle"] = at.CABundle
	}
	live, err := api.CustomResourceDefinitions().Get(ctx, d.crd.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, err
	default:
		if is := webhookOf(live); is != nil && is.URL != nil {
			local["url"] = *is.URL
		}
	}
	var document map[string]any
	if err := json.Unmarshal(d.raw, &document); err != nil {
		return nil, err
	}
	webhook := document["spec"].(map[string]any)["conversion"].(map[string]any)["webhook"].(map[string]any)
	webhook["clientConfig"] = local
	return json.Marshal(document)
}

// webhookOf returns the conversion webhook of a definition, or nil.
func webhookOf(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.WebhookClientConfig {
	if c := crd.Spec.Conversion; c != nil && c.Webhook != nil {
		return c.Webhook.ClientConfig
	}
	return nil
}

// awaitsConversion reports whether an error shows that a resource is served but its conversion webhook does not work
// yet.
func awaitsConversion(crd *apiextensionsv1.CustomResourceDefinition, err error) bool {
	return webhookOf(crd) != nil && strings.Contains(err.Error(), "conversion webhook for ")
}
