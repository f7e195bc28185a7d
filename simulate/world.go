package simulate

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/internal/simulation/schedule"
)

// World is the present state of a run, for conditions and invariants.
//
// An object is named "resource/name" or "resource/namespace/name", such as "pods/web-0" or "deployments.apps/prod/web".
// The namespace defaults to default. The resource can be a plural, a singular, a short name or a kind. The
// controller may define a resource while it runs: until then it has no objects. If it is never served in a run without
// faults, the search fails. Too many or too few slashes panic.
type World struct{ run *schedule.Run }

// Object returns a copy of an object, or nil if it does not exist.
func (w World) Object(object string) *unstructured.Unstructured {
	u, err := w.run.Object(object)
	if err != nil {
		panic("simulate: " + err.Error())
	}
	return u
}

// Objects returns copies of all objects of a resource, in all namespaces, by namespace and name.
func (w World) Objects(resource string) []*unstructured.Unstructured {
	return w.run.Objects(resource)
}

// Into decodes an object into a typed one.
func (w World) Into(object string, into any) error {
	u := w.Object(object)
	if u == nil {
		return fmt.Errorf("%s does not exist", object)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// Calls returns how often each call to a service outside the cluster had its effect, by method, host, path and body.
func (w World) Calls() map[string]int { return w.run.Calls() }

// Elapsed returns the virtual time since the start of the run.
func (w World) Elapsed() time.Duration { return w.run.Elapsed() }
