package apiserver

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Resource is one kind of object that the server serves. Group, Version, Resource and Kind are required
// (Group is empty for the core group); everything else has a useful zero value.
type Resource struct {
	Group, Version, Resource, Kind string

	// Namespaced says whether objects live in namespaces.
	Namespaced bool

	// Singular and ShortNames are only shown by discovery. Singular defaults to the lower-case Kind.
	Singular   string
	ShortNames []string

	// Subresources that are served: "status", and for "serviceaccounts" also "token". A resource with "status"
	// ignores status on its main endpoint and everything but status on the status endpoint.
	Subresources []string

	// noGeneration leaves metadata.generation alone, as core/v1 ConfigMaps and Secrets do.
	noGeneration bool

	// Fields are the fields that a field selector may name, besides metadata.name and metadata.namespace. A function
	// is given the whole object, which it must not change.
	Fields map[string]func(obj map[string]any) string

	// Validate, if set, sees each create, update, patch and apply before it is stored; old is nil for a create. An
	// error becomes 422 Invalid, or its own status if it is an apierrors.APIStatus. It is called without any lock,
	// from several goroutines, and must not change its arguments.
	Validate func(ctx context.Context, obj, old *unstructured.Unstructured) error

	// gracePeriod gives the default deletion grace period of an object in seconds; nil means 0, immediate deletion.
	// Objects with a grace period stay, with a deletionTimestamp, until they are deleted with grace period 0.
	gracePeriod func(obj *unstructured.Unstructured) int64

	// returnsDeleted answers a delete with the last state of the object, as pods do, instead of a Status.
	returnsDeleted bool
}

// GVR returns group, version and resource.
func (r Resource) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

// GVK returns group, version and kind.
func (r Resource) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

func (r Resource) apiVersion() string { return r.GVK().GroupVersion().String() }

func (r Resource) has(subresource string) bool { return slices.Contains(r.Subresources, subresource) }

// typed tells whether the kind is a built-in one, known to client-go's scheme: those have protobuf, strategic merge
// patch, a schema for server-side apply, and list items without kind and apiVersion.
func (r Resource) typed() bool { return scheme.Scheme.Recognizes(r.GVK()) }

func (r Resource) newTyped() (runtime.Object, error) { return scheme.Scheme.New(r.GVK()) }

// Widgets is the custom resource that every server has by default: example.fairlead.io/v1 widgets, with status.
func Widgets() Resource {
	return Resource{
		Group: "example.fairlead.io", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true,
		Subresources: []string{"status"},
	}
}

// DefaultResources are what a server serves unless Options.Resources says otherwise: the usual built-in kinds
// and Widgets. The slice is the caller's.
func DefaultResources() []Resource {
	status := []string{"status"}
	field := func(path ...string) func(map[string]any) string {
		return func(obj map[string]any) string {
			s, _, _ := unstructured.NestedString(obj, path...)
			return s
		}
	}
	yes := func(path ...string) func(map[string]any) string {
		return func(obj map[string]any) string {
			b, _, _ := unstructured.NestedBool(obj, path...)
			return strconv.FormatBool(b)
		}
	}
	core := func(resource, kind string, namespaced bool) Resource {
		return Resource{Version: "v1", Resource: resource, Kind: kind, Namespaced: namespaced, noGeneration: true}
	}
	pods := core("pods", "Pod", true)
	pods.noGeneration, pods.Subresources, pods.ShortNames = false, status, []string{"po"}
	fields := func(names ...string) map[string]func(map[string]any) string {
		m := map[string]func(map[string]any) string{}
		for _, name := range names {
			m[name] = field(strings.Split(name, ".")...)
		}
		return m
	}
	pods.Fields = fields("spec.nodeName", "spec.schedulerName", "spec.serviceAccountName", "spec.restartPolicy",
		"status.phase", "status.podIP",
		"status.nominatedNodeName")
	pods.Fields["spec.hostNetwork"] = yes("spec", "hostNetwork")
	pods.gracePeriod, pods.returnsDeleted = podGracePeriod, true
	secrets := core("secrets", "Secret", true)
	secrets.Fields = fields("type")
	namespaces := core("namespaces", "Namespace", false)
	namespaces.Subresources, namespaces.ShortNames = []string{"status", "finalize"}, []string{"ns"}
	namespaces.Fields = fields("status.phase")
	nodes := core("nodes", "Node", false)
	nodes.Subresources = status
	nodes.Fields = map[string]func(map[string]any) string{"spec.unschedulable": yes("spec", "unschedulable")}
	events := core("events", "Event", true)
	events.Fields = fields("type", "reason", "reportingComponent", "involvedObject.kind", "involvedObject.name",
		"involvedObject.namespace",
		"involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath")
	events.Fields["source"] = func(obj map[string]any) string {
		if s := field("source", "component")(obj); s != "" {
			return s
		}
		return field("reportingComponent")(obj)
	}
	accounts := core("serviceaccounts", "ServiceAccount", true)
	accounts.Subresources, accounts.returnsDeleted = []string{"token"}, true
	services := core("services", "Service", true)
	services.Subresources, services.returnsDeleted, services.Fields = status, true, fields("spec.clusterIP", "spec.type")
	configMaps := core("configmaps", "ConfigMap", true)
	configMaps.ShortNames = []string{"cm"}
	jobs := Resource{Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Namespaced: true, Subresources: status}
	jobs.Fields = map[string]func(map[string]any) string{"status.successful": func(obj map[string]any) string {
		n, _, _ := unstructured.NestedInt64(obj, "status", "succeeded")
		return strconv.FormatInt(n, 10)
	}}
	apps := func(resource, kind string) Resource {
		return Resource{Group: "apps", Version: "v1", Resource: resource, Kind: kind, Namespaced: true, Subresources: status}
	}
	return []Resource{
		pods, configMaps, secrets, namespaces, nodes, events, accounts, services, core("endpoints", "Endpoints", true),
		apps("deployments", "Deployment"), apps("statefulsets", "StatefulSet"), apps("replicasets", "ReplicaSet"),
		apps("daemonsets", "DaemonSet"),
		jobs,
		{
			Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease", Namespaced: true,
			noGeneration: true,
		},
		{Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event", Namespaced: true, noGeneration: true},
		{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
			Kind:         "CustomResourceDefinition",
			Subresources: status, ShortNames: []string{"crd"},
		},
		Widgets(),
	}
}

// podGracePeriod is the rule of the real server: a pod on a node is given time, any other is deleted at once.
func podGracePeriod(obj *unstructured.Unstructured) int64 {
	if node, _, _ := unstructured.NestedString(obj.Object, "spec", "nodeName"); node == "" {
		return 0
	}
	if s, ok, _ := unstructured.NestedInt64(obj.Object, "spec", "terminationGracePeriodSeconds"); ok {
		return s
	}
	return 30
}

func (r Resource) singular() string {
	if r.Singular != "" {
		return r.Singular
	}
	return strings.ToLower(r.Kind)
}
