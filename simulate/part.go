package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/internal/simulation/live"
	"github.com/fairlead-io/fairlead/internal/simulation/schedule"
)

// A Part is a step of the workload or an option.
type Part interface{ add(c *course) error }

type partFunc func(c *course) error

func (f partFunc) add(c *course) error { return f(c) }

// step returns a part that appends a step.
func step(s schedule.Step) Part {
	return partFunc(func(c *course) error {
		c.steps = append(c.steps, s)
		return nil
	})
}

// Apply applies all objects of a YAML file, or of a directory, with server-side apply. Objects without a namespace
// belong to namespace default. It does not wait for anything.
func Apply(path string) Part {
	return partFunc(func(c *course) error {
		objects, err := schedule.ReadObjects(path)
		if err != nil {
			return fmt.Errorf("cannot read the objects to apply: %w", err)
		}
		return step(schedule.Apply("apply "+path, objects)).add(c)
	})
}

// ApplyObject applies an object with server-side apply. The kind of a typed object must be in client-go's scheme.
func ApplyObject(obj runtime.Object) Part {
	return partFunc(func(c *course) error {
		u, err := toUnstructured(obj)
		if err != nil {
			return fmt.Errorf("cannot apply an object: %w", err)
		}
		name := "apply " + strings.ToLower(u.GetKind()) + "/" + u.GetName()
		return step(schedule.Apply(name, []*unstructured.Unstructured{u})).add(c)
	})
}

// Patch applies a JSON merge patch to an object, which is named as in World.
func Patch(object, patch string) Part { return step(schedule.Patch(object, patch)) }

// PatchStatus applies a JSON merge patch to the status of an object.
func PatchStatus(object, patch string) Part { return step(schedule.PatchStatus(object, patch)) }

// Delete deletes an object, which is named as in World. It does not wait until the object is gone: see Gone. Half of
// the schedules end before the last deletion, when nothing changes any more, because a deletion also removes objects
// that should not exist.
func Delete(object string) Part { return step(schedule.Delete(object)) }

// Await waits until the condition returns nil. A step that is reached without faults has to be reached with faults as
// well. It fails when nothing has changed for ten minutes of virtual time, or after two hours; with Command, for 20 s
// of real time, or after three minutes.
func Await(condition func(World) error) Part {
	return step(schedule.Await("await", func(r *schedule.Run) error { return condition(World{r}) }))
}

// AwaitCondition waits until status.conditions of an object has the type with status True, for the present generation
// if the condition names one.
func AwaitCondition(object, conditionType string) Part {
	return step(schedule.AwaitCondition(object, conditionType, ""))
}

// Gone waits until an object does not exist.
func Gone(object string) Part { return step(schedule.Gone(object)) }

// Wait waits for a virtual time; with Command, for a real one.
func Wait(d time.Duration) Part { return step(schedule.Wait(d)) }

// Do calls a function with a configuration of a client that is not part of the subject.
func Do(name string, fn func(ctx context.Context, cfg *rest.Config) error) Part {
	return step(schedule.Step{Name: name, Play: func(ctx context.Context, r *schedule.Run) error {
		return fn(ctx, r.Config())
	}})
}

// Given has the objects in a YAML file, or in the files of a directory, exist before the controller starts: what it
// cannot start without, such as its settings or its namespace. They are applied in each schedule, namespaces first. An
// object without a namespace belongs to namespace default. CustomResourceDefinitions are left out.
func Given(path string) Part {
	return partFunc(func(c *course) error {
		objects, err := schedule.ReadGiven(path)
		if err != nil {
			return fmt.Errorf("cannot read the given objects: %w", err)
		}
		c.given = append(c.given, objects...)
		return nil
	})
}

// Invariant is checked after each change. A violation is a finding, also without faults.
func Invariant(holds func(World) error) Part {
	return partFunc(func(c *course) error {
		c.invariants = append(c.invariants, func(r *schedule.Run) error { return holds(World{r}) })
		return nil
	})
}

// External stands in for a service outside the cluster, such as "vendor.example". New is called for each schedule. The
// subject reaches the service with Client, at http or https URLs with this host. A POST or PATCH that succeeds more
// often than without faults is a finding, unless it repeats an earlier one with the same header Idempotency-Key.
func External(host string, newHandler func() http.Handler) Part {
	return partFunc(func(c *course) error {
		if c.outside[host] != nil {
			return fmt.Errorf("the external service %q is given twice", host)
		}
		c.outside[host] = newHandler
		return nil
	})
}

// Command runs a program as the subject, in place of Subject.Start: a manager in any language, or one that does not
// work in virtual time. Each schedule starts it on a new control plane, a real kube-apiserver, etcd and
// kube-controller-manager with a stand-in for nodes. A schedule takes about ten seconds of real time. The first one on
// a machine also builds the control plane, which takes about seven minutes.
//
// The program finds the API server by the environment variable KUBECONFIG; the text {kubeconfig} in an argument is
// replaced by the same path. If it ends before its first request, it is run as in a Pod, with the variables and files
// of a service account; this needs Linux. It has all rights. A crash kills its process group. Services of External are
// reached by the environment variable HTTP_PROXY.
func Command(program string, args ...string) Part {
	return partFunc(func(c *course) error {
		path, err := live.LookPath(program)
		if err != nil {
			return err
		}
		c.command = append([]string{path}, args...)
		return nil
	})
}

// Seed sets the seed of all that is random. The default is 1, so that each run plays the same schedules. 0 takes a
// random one, which the report shows.
func Seed(seed uint64) Part {
	return partFunc(func(c *course) error {
		if seed == 0 {
			seed = randomSeed()
		}
		c.options.Seed = seed
		return nil
	})
}

// Schedules bounds the number of schedules with faults. There is no bound by default. The classes of faults take turns,
// so that a few schedules have some of each.
func Schedules(n int) Part {
	return partFunc(func(c *course) error {
		if n < 1 {
			return fmt.Errorf("cannot play %d schedules", n)
		}
		c.options.Schedules = n
		return nil
	})
}

// Until bounds the real time of the search, including the runs without faults. The default is two minutes. With
// Command, it is five minutes from the start of the first control plane. No schedule begins later. A schedule in
// progress, and the confirmation of what it shows, may take three minutes more. The search also ends before the
// deadline of the test.
func Until(d time.Duration) Part {
	return partFunc(func(c *course) error {
		if d <= 0 {
			return fmt.Errorf("cannot search for %s", d)
		}
		c.until = d
		return nil
	})
}

// Faults selects classes of faults: crash, late, lost, error, expired, pause, depose, stale. The default is all of them
// but stale.
func Faults(classes ...string) Part {
	return partFunc(func(c *course) error {
		kinds, err := engine.ParseClasses(classes)
		c.options.Faults = append(c.options.Faults, kinds...)
		return err
	})
}

// Kinds selects resources, such as "pods" or "widgets.example.com". Faults happen only at writes and changes of these.
// The default is all resources.
func Kinds(resources ...string) Part {
	return partFunc(func(c *course) error {
		c.options.Kinds = append(c.options.Kinds, resources...)
		return nil
	})
}

// Ignore names fields that may differ at the end: "status.message", or "pods:status.message" for one resource. What is
// below a field is ignored as well. "controllerrevisions.apps:*" ignores all objects of a resource.
func Ignore(paths ...string) Part {
	return partFunc(func(c *course) error {
		if slices.Contains(paths, "") {
			return errors.New("cannot ignore an empty path")
		}
		c.options.Ignore = append(c.options.Ignore, paths...)
		return nil
	})
}

// Out writes the findings to a directory: report.txt, and for each finding N.json with its plan and N.html with the
// courses without and with the fault side by side. Without Out, or with an empty name, no file is written.
func Out(dir string) Part {
	return partFunc(func(c *course) error {
		c.out = dir
		return nil
	})
}

// toUnstructured converts an object, and fills in apiVersion and kind.
func toUnstructured(obj runtime.Object) (*unstructured.Unstructured, error) {
	b, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(b, &u.Object); err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if u.GetKind() == "" {
		gvks, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, fmt.Errorf("%w; set its kind and apiVersion", err)
		}
		u.SetGroupVersionKind(gvks[0])
	}
	return u, nil
}
