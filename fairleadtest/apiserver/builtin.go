package apiserver

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// builtInKinds has the Go types of the built-in kinds.
type builtInKinds struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
}

// builtIn returns the built-in kinds. They never change, so all servers of a process share them. It does not use the
// scheme of client-go, to which programs add kinds of their own.
var builtIn = sync.OnceValue(func() builtInKinds {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	utilruntime.Must(scheme.AddToScheme(s))
	return builtInKinds{s, serializer.NewCodecFactory(s)}
})

// strictResources returns the resources of a server with Options.Strict.
func strictResources() []Resource {
	status := []string{"status"}
	var out []Resource
	for _, r := range DefaultResources() {
		if !r.typed() && r.GVR() != definitionResource {
			continue
		}
		switch r.Kind {
		case "Deployment", "ReplicaSet", "StatefulSet":
			r.Subresources = []string{"status", "scale"}
		}
		out = append(out, r)
	}
	claims := Resource{
		Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true,
		Subresources: status, ShortNames: []string{"pvc"}, noGeneration: true, returnsDeleted: true,
	}
	volumes := Resource{
		Version: "v1", Resource: "persistentvolumes", Kind: "PersistentVolume",
		Subresources: status, ShortNames: []string{"pv"}, noGeneration: true, returnsDeleted: true,
	}
	out = append(out, claims, volumes)
	add := func(group, resource, kind string, namespaced bool, change func(*Resource)) {
		r := Resource{Group: group, Version: "v1", Resource: resource, Kind: kind, Namespaced: namespaced}
		if change != nil {
			change(&r)
		}
		out = append(out, r)
	}
	withStatus := func(r *Resource) { r.Subresources = status }
	noGeneration := func(r *Resource) { r.noGeneration = true }
	add("apps", "controllerrevisions", "ControllerRevision", true, noGeneration)
	add("batch", "cronjobs", "CronJob", true, withStatus)
	add("discovery.k8s.io", "endpointslices", "EndpointSlice", true, nil)
	add("networking.k8s.io", "ingresses", "Ingress", true, withStatus)
	add("networking.k8s.io", "ingressclasses", "IngressClass", false, nil)
	add("policy", "poddisruptionbudgets", "PodDisruptionBudget", true, withStatus)
	for _, kind := range []struct {
		resource, kind string
		namespaced     bool
	}{
		{"roles", "Role", true},
		{"rolebindings", "RoleBinding", true},
		{"clusterroles", "ClusterRole", false},
		{"clusterrolebindings", "ClusterRoleBinding", false},
	} {
		add("rbac.authorization.k8s.io", kind.resource, kind.kind, kind.namespaced, noGeneration)
	}
	add("scheduling.k8s.io", "priorityclasses", "PriorityClass", false, nil)
	add("storage.k8s.io", "storageclasses", "StorageClass", false, noGeneration)
	return out
}

// makeNamespaces creates the namespaces that every cluster has.
func (s *Server) makeNamespaces() {
	t := s.store.tables[corev1.SchemeGroupVersion.WithResource("namespaces")]
	if t == nil {
		return
	}
	for _, name := range []string{
		metav1.NamespaceDefault, corev1.NamespaceNodeLease, metav1.NamespacePublic, metav1.NamespaceSystem,
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetGroupVersionKind(t.res.GVK())
		obj.SetName(name)
		prepareNamespace(obj.Object, nil)
		s.complete(t, obj, nil)
		s.store.commit(t, objectKey("", name), watch.Added, nil, s.builder(t, obj))
	}
}
