package bubble

import (
	"slices"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// builtIn returns the resources that the model serves besides those of CustomResourceDefinitions.
func builtIn() []apiserver.Resource {
	all := apiserver.DefaultResources()
	all = slices.DeleteFunc(all, func(r apiserver.Resource) bool { return r.Group == "apiextensions.k8s.io" })
	status := []string{"status"}
	add := func(group, resource, kind string, namespaced bool, subresources []string, short ...string) {
		all = append(all, apiserver.Resource{
			Group: group, Version: "v1", Resource: resource, Kind: kind, Namespaced: namespaced, Subresources: subresources,
			ShortNames: short,
		})
	}
	add("", "persistentvolumeclaims", "PersistentVolumeClaim", true, status, "pvc")
	add("", "persistentvolumes", "PersistentVolume", false, status, "pv")
	add("", "resourcequotas", "ResourceQuota", true, status, "quota")
	add("", "limitranges", "LimitRange", true, nil, "limits")
	add("apps", "controllerrevisions", "ControllerRevision", true, nil)
	add("batch", "cronjobs", "CronJob", true, status, "cj")
	add("discovery.k8s.io", "endpointslices", "EndpointSlice", true, nil)
	add("networking.k8s.io", "ingresses", "Ingress", true, status, "ing")
	add("networking.k8s.io", "ingressclasses", "IngressClass", false, nil)
	add("networking.k8s.io", "networkpolicies", "NetworkPolicy", true, nil, "netpol")
	add("policy", "poddisruptionbudgets", "PodDisruptionBudget", true, status, "pdb")
	add("rbac.authorization.k8s.io", "roles", "Role", true, nil)
	add("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", true, nil)
	add("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", false, nil)
	add("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", false, nil)
	add("scheduling.k8s.io", "priorityclasses", "PriorityClass", false, nil, "pc")
	add("storage.k8s.io", "storageclasses", "StorageClass", false, nil, "sc")
	return append(all, apiserver.Resource{
		Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler",
		Namespaced: true, Subresources: status, ShortNames: []string{"hpa"},
	})
}
