package bubble

import "github.com/fairlead-io/fairlead/fairleadtest/apiserver"

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
