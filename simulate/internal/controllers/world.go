package controllers

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// The resources that the controllers act on, as world names them.
const (
	accounts     = "serviceaccounts"
	claims       = "persistentvolumeclaims"
	classes      = "storageclasses.storage.k8s.io"
	configMaps   = "configmaps"
	crds         = "customresourcedefinitions.apiextensions.k8s.io"
	daemonSets   = "daemonsets.apps"
	deployments  = "deployments.apps"
	events       = "events"
	jobs         = "jobs.batch"
	namespaces   = "namespaces"
	nodes        = "nodes"
	pods         = "pods"
	replicaSets  = "replicasets.apps"
	secrets      = "secrets"
	services     = "services"
	slicesOfNets = "endpointslices.discovery.k8s.io"
	statefulSets = "statefulsets.apps"
	volumes      = "persistentvolumes"
)

// object is the present state of one object.
type object struct {
	res             apiserver.Resource
	resource        string // such as "replicasets.apps"
	namespace, name string
	uid             types.UID
	owners          []metav1.OwnerReference
	finalizers      []string
	isDeleted       bool // it has a deletionTimestamp

	u     *unstructured.Unstructured // shared with the server
	typed any                        // u as a Go type, once it was asked for
}

func (o *object) hasFinalizer(name string) bool { return slices.Contains(o.finalizers, name) }

func (o *object) compare(other *object) int {
	return cmp.Or(strings.Compare(o.resource, other.resource), strings.Compare(o.namespace, other.namespace),
		strings.Compare(o.name, other.name))
}

// as returns an object as a Go type. The result is shared and must not be modified.
func as[T any](o *object) *T {
	if t, ok := o.typed.(*T); ok {
		return t
	}
	t := new(T)
	// The server has converted the object to the same type before, so this cannot fail.
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.u.Object, t)
	o.typed = t
	return t
}

// controllerOf returns the reference to the controlling owner; nil if there is none.
func (o *object) controllerOf() *metav1.OwnerReference {
	for i := range o.owners {
		if o.owners[i].Controller != nil && *o.owners[i].Controller {
			return &o.owners[i]
		}
	}
	return nil
}

// table has the objects of one resource in order of namespace and name.
type table []*object

func (t table) find(namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(t, key{namespace: namespace, name: name}, func(o *object, k key) int {
		return cmp.Or(strings.Compare(o.namespace, k.namespace), strings.Compare(o.name, k.name))
	})
}

// world is the state of the cluster as of the last change that was learned. Only the goroutine of Run uses it.
type world struct {
	tables  map[string]table
	byUID   map[types.UID]*object
	owned   map[types.UID]map[*object]bool // the objects that refer to an owner, by its uid
	kinds   map[schema.GroupKind]scope
	blocked map[key]bool // dependents of owners of kinds that are not served
	history map[types.UID]*templates
	gaps    map[string]bool // what objects have asked for and the controllers do not have
}

// scope is what is known about a kind.
type scope struct{ isServed, isNamespaced bool }

func newWorld() *world {
	return &world{
		tables: map[string]table{}, byUID: map[types.UID]*object{}, owned: map[types.UID]map[*object]bool{},
		kinds: map[schema.GroupKind]scope{}, blocked: map[key]bool{},
		history: map[types.UID]*templates{}, gaps: map[string]bool{},
	}
}

// get returns an object; nil if there is none.
func (w *world) get(resource, namespace, name string) *object {
	t := w.tables[resource]
	if i, ok := t.find(namespace, name); ok {
		return t[i]
	}
	return nil
}

// all returns the objects of a resource in a namespace, in order of names.
func (w *world) all(resource, namespace string) []*object {
	t := w.tables[resource]
	first, _ := t.find(namespace, "")
	last, _ := t.find(namespace+"\x00", "")
	return t[first:last:last]
}

// dependents returns the objects that refer to an owner, in order.
func (w *world) dependents(uid types.UID) []*object {
	list := make([]*object, 0, len(w.owned[uid]))
	for o := range w.owned[uid] {
		list = append(list, o)
	}
	slices.SortFunc(list, (*object).compare)
	return list
}

// learn takes a change, and returns the keys that it concerns, in order.
func (w *world) learn(c apiserver.Change) []key {
	u := c.New
	if u == nil {
		u = c.Old
	}
	resource := c.Resource.GVR().GroupResource().String()
	gk := c.Resource.GVK().GroupKind()
	if !w.kinds[gk].isServed {
		w.kinds[gk] = scope{true, c.Resource.Namespaced}
	}
	t := w.tables[resource]
	i, found := t.find(u.GetNamespace(), u.GetName())
	var before object
	var o *object
	if found {
		o = t[i]
		before = *o
	}
	if found && (c.New == nil || o.uid != c.New.GetUID()) {
		w.forget(o)
		t = slices.Delete(t, i, i+1)
		found = false
	}
	if c.New != nil {
		if !found {
			o = &object{}
			t = slices.Insert(t, i, o)
		}
		w.set(o, resource, c)
	}
	w.tables[resource] = t
	if o == nil { // removed, and never seen
		return nil
	}
	keys := w.concerned(&before, o, c.New == nil)
	slices.SortFunc(keys, key.compare)
	return slices.Compact(keys)
}

func (w *world) set(o *object, resource string, c apiserver.Change) {
	u := c.New
	for _, ref := range o.owners {
		delete(w.owned[ref.UID], o)
	}
	*o = object{
		res: c.Resource, resource: resource, namespace: u.GetNamespace(), name: u.GetName(), uid: u.GetUID(),
		owners: u.GetOwnerReferences(), finalizers: u.GetFinalizers(), isDeleted: u.GetDeletionTimestamp() != nil, u: u,
	}
	w.byUID[o.uid] = o
	for _, ref := range o.owners {
		if w.owned[ref.UID] == nil {
			w.owned[ref.UID] = map[*object]bool{}
		}
		w.owned[ref.UID][o] = true
	}
}

func (w *world) forget(o *object) {
	for _, ref := range o.owners {
		delete(w.owned[ref.UID], o)
	}
	delete(w.byUID, o.uid)
	delete(w.history, o.uid)
}

// decision is what a controller does next for a key. The zero value waits for a change.
type decision struct {
	requests []*request // sent one after the other; the first failure ends them
	again    time.Time  // without requests: when to decide again, if no change comes before
}

func send(requests ...*request) decision { return decision{requests: requests} }

// decide returns what the controller of a key does next.
func (w *world) decide(k key) decision {
	o := w.get(k.resource, k.namespace, k.name)
	if o == nil {
		return decision{}
	}
	switch k.controller {
	case ofGarbage:
		return collect(w, o)
	case ofNamespace:
		return fillNamespace(w, o)
	case ofPod:
		return runPod(w, o)
	case ofReplicaSet:
		return scaleReplicaSet(w, o)
	case ofDeployment:
		return rollDeployment(w, o)
	case ofStatefulSet:
		return rollStatefulSet(w, o)
	case ofDaemonSet:
		return runDaemonSet(w, o)
	case ofJob:
		return runJob(w, o)
	case ofJobPod:
		return releasePod(w, o)
	case ofClaim:
		return bindClaim(w, o)
	case ofVolume:
		return reclaimVolume(w, o)
	case ofEndpoints:
		return publishEndpoints(w, o)
	}
	return decision{}
}
