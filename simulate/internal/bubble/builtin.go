package bubble

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// more returns kinds that controllers often use and that the model serves without defaults and rules.
func more() []apiserver.Resource {
	status := []string{"status"}
	return []apiserver.Resource{
		{Version: "v1", Resource: "resourcequotas", Kind: "ResourceQuota", Namespaced: true, Subresources: status},
		{Version: "v1", Resource: "limitranges", Kind: "LimitRange", Namespaced: true},
		{
			Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies", Kind: "NetworkPolicy", Namespaced: true,
			ShortNames: []string{"netpol"},
		},
		{
			Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler",
			Namespaced: true, Subresources: status, ShortNames: []string{"hpa"},
		},
	}
}

// gaps is what the model does not have for kinds that it serves. The report names the kinds that the subject uses.
var gaps = map[schema.GroupResource]string{
	{Resource: "endpoints"}:                                      "no controller",
	{Resource: "limitranges"}:                                    "no defaults, rules or effect",
	{Resource: "resourcequotas"}:                                 "no defaults, rules, controller or effect",
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}: "no defaults, rules or controller",
	{Group: "batch", Resource: "cronjobs"}:                       "no controller",
	{Group: "networking.k8s.io", Resource: "networkpolicies"}:    "no defaults, rules or effect",
	{Group: "policy", Resource: "poddisruptionbudgets"}:          "no controller or effect",
}
