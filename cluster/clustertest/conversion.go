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

// localWebhooks is where package admission listens by default.
const localWebhooks = "https://127.0.0.1:9443"

// localized returns what is applied of a definition. No Service leads to programs on this machine, so the Service that
// converts becomes a URL with the same path: the one that the API server has already, which the program has written, or
// that of package admission. Nothing is converted before the program has filled in the caBundle.
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

// webhookOf says where the objects of a definition are converted; nil: by no webhook.
func webhookOf(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.WebhookClientConfig {
	if c := crd.Spec.Conversion; c != nil && c.Webhook != nil {
		return c.Webhook.ClientConfig
	}
	return nil
}

// awaitsConversion says whether an error is the answer of a resource that is served, and whose objects nothing converts
// yet.
func awaitsConversion(crd *apiextensionsv1.CustomResourceDefinition, err error) bool {
	return webhookOf(crd) != nil && strings.Contains(err.Error(), "conversion webhook for ")
}
