package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// kinds finds resources by the names that a workload gives them. The subject may create definitions, so a resource may
// be served later. It is safe for concurrent use.
type kinds struct {
	served func() []apiserver.Resource

	mu    sync.Mutex
	asked map[string]bool // by the name that a condition or an invariant gave a resource: whether it was served then
}

func newKinds(served func() []apiserver.Resource) *kinds {
	return &kinds{served: served, asked: map[string]bool{}}
}

// unservedError says that the API server does not serve a resource, or not yet.
type unservedError struct{ text string }

func (e *unservedError) Error() string { return e.text }

// of returns the resource of a kind.
func (k *kinds) of(gvk schema.GroupVersionKind) (apiserver.Resource, error) {
	for _, res := range k.served() {
		if res.GVK() == gvk {
			return res, nil
		}
	}
	return apiserver.Resource{}, &unservedError{
		fmt.Sprintf("the API server does not serve the kind %s; is its CustomResourceDefinition given?", gvk),
	}
}

// resolve splits resource[.group]/[namespace/]name.
func (k *kinds) resolve(ref string) (res apiserver.Resource, namespace, name string, err error) {
	parts := strings.Split(ref, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return res, "", "", fmt.Errorf("cannot read the reference %q: it is not resource/name or resource/namespace/name",
			ref)
	}
	if res, err = k.resource(parts[0]); err != nil {
		return res, "", "", err
	}
	name = parts[len(parts)-1]
	switch {
	case res.Namespaced && len(parts) == 3:
		namespace = parts[1]
	case res.Namespaced:
		namespace = metav1.NamespaceDefault
	case len(parts) == 3:
		return res, "", "", fmt.Errorf("cannot read the reference %q: %s have no namespace", ref, res.Resource)
	}
	return res, namespace, name, nil
}

// resource finds a resource by its plural, singular, short name or kind, with or without the group. Of several versions
// it returns the newest one, which keeps all fields if there is no conversion.
func (k *kinds) resource(name string) (apiserver.Resource, error) {
	plural, group, qualified := strings.Cut(strings.ToLower(name), ".")
	var found *apiserver.Resource
	for _, res := range k.served() {
		if qualified && res.Group != group {
			continue
		}
		names := append([]string{res.Resource, res.Singular, strings.ToLower(res.Kind)}, res.ShortNames...)
		if !slices.Contains(names, plural) {
			continue
		}
		if found == nil || res.Group == found.Group && res.Resource == found.Resource &&
			version.CompareKubeAwareVersionStrings(res.Version, found.Version) > 0 {
			found = &res
		}
	}
	if found == nil {
		return apiserver.Resource{}, &unservedError{fmt.Sprintf("the API server has no resource %q", name)}
	}
	return *found, nil
}

// ask keeps that a condition or an invariant named a resource, and whether it was served.
func (k *kinds) ask(resource string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked[resource] = k.asked[resource] || err == nil
}

// unserved returns the resources that were asked for and never served, sorted.
func (k *kinds) unserved() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	never := maps.Clone(k.asked)
	maps.DeleteFunc(never, func(_ string, served bool) bool { return served })
	return slices.Sorted(maps.Keys(never))
}
