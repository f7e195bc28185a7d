package apiserver

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is one kind of object that the server serves. Group, Version, Resource and Kind are required; Group is empty
// for the core group. The zero values of all other fields are useful defaults.
type Resource struct {
	Group, Version, Resource, Kind string

	// Namespaced reports whether objects are in namespaces.
	Namespaced bool

	// Singular and ShortNames are used only in discovery. Singular defaults to the lower-case Kind.
	Singular   string
	ShortNames []string

	// Subresources are the served subresources: "status", "scale" for spec.replicas and status.replicas, for
	// "serviceaccounts" also "token", and for "pods" also "binding". With "status", the main endpoint ignores status,
	// and the status endpoint ignores everything else.
	Subresources []string

	categories []string // used only in discovery

	// noGeneration leaves metadata.generation unchanged, as for core/v1 ConfigMaps and Secrets.
	noGeneration bool

	// Fields are the fields that a field selector may use besides metadata.name and metadata.namespace. A function gets
	// the whole object and must not modify it.
	Fields map[string]func(obj map[string]any) string

	// Validate, if set, checks the result of each create, update, patch and apply before it is stored; old is nil for a
	// create. An error becomes 422 Invalid, or its own status if it is an apierrors.APIStatus. Validate is called
	// concurrently and without locks, and must not modify its arguments.
	Validate func(ctx context.Context, obj, old *unstructured.Unstructured) error

	// gracePeriod returns the default grace period of an object in seconds; nil means 0, immediate deletion. Objects
	// with a grace period stay, with a deletionTimestamp, until they are deleted with grace period 0.
	gracePeriod func(obj *unstructured.Unstructured) int64

	// returnsDeleted answers a delete with the last state of the object instead of a Status, as for pods.
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

// typed reports whether the kind is built-in. Built-in kinds have protobuf, strategic merge patch, a schema for
// server-side apply, and list items without kind and apiVersion.
func (r Resource) typed() bool { return builtIn().scheme.Recognizes(r.GVK()) }

func (r Resource) newTyped() (runtime.Object, error) { return builtIn().scheme.New(r.GVK()) }

// Widgets returns the custom resource that every server has by default: example.fairlead.io/v1 widgets, with status.
func Widgets() Resource {
	return Resource{
		Group: "example.fairlead.io", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true,
		Subresources: []string{"status"},
	}
}

// DefaultResources returns the resources that a server has unless Options.Resources is set: common built-in kinds and
// Widgets. The caller owns the slice.
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
	pods.noGeneration, pods.Subresources, pods.ShortNames = false, []string{"status", "binding"}, []string{"po"}
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

// podGracePeriod follows the real server: only a pod on a node has a grace period; others are deleted at once.
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
