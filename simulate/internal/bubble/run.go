package bubble

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/simulate/internal/engine"
)

const (
	// calm is how long nothing must change until the system is quiet. Back-off of usual controllers ends at about 16
	// minutes, but grows to more than a few seconds only after many failures.
	calm = 10 * time.Minute
	// brief is how long nothing must change if the state is the one without faults.
	brief = 20 * time.Second
	// tooLong and tooMany bound a run that does not become quiet.
	tooLong = 2 * time.Hour
	tooMany = 300 // changes of one object
)

// A Step is one step of a workload.
type Step struct {
	Name string
	Play func(ctx context.Context, r *Run) error
}

// Run is one run in progress, as steps, conditions and invariants see it. It is safe for concurrent use.
type Run struct {
	progress func()
	rec      *recorder
	server   *apiserver.Server
	client   dynamic.Interface
	config   *rest.Config
	outside  *outside
	others   interface{ Idle() bool } // the stand-ins for controllers of Kubernetes
	want     *engine.Want             // nil in a reference
}

// Config returns a configuration of a client that is not part of the subject.
func (r *Run) Config() *rest.Config { return rest.CopyConfig(r.config) }

// Elapsed returns the virtual time since the start.
func (r *Run) Elapsed() time.Duration { return time.Since(r.rec.start) }

// Calls returns the number of calls with an effect on an outside service.
func (r *Run) Calls() map[string]int { return r.outside.effects() }

// Await waits until condition returns nil. It gives up when nothing changes any more, and returns the last error.
func (r *Run) Await(ctx context.Context, condition func() error) error {
	begin := time.Now()
	r.rec.restart()
	for {
		r.progress()
		next := r.rec.next()
		err := condition()
		if err == nil {
			return nil
		}
		last, changes := r.rec.quietSince()
		switch {
		case time.Since(last) >= calm:
			return fmt.Errorf("%w (nothing changed for %s)", err, calm)
		case time.Since(begin) >= tooLong:
			return fmt.Errorf("%w (after %s)", err, tooLong)
		case changes > tooMany:
			return fmt.Errorf("%w (one object has changed %d times)", err, changes)
		}
		t := time.NewTimer(time.Second * 10)
		select {
		case <-next:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// settle waits until the system is quiet. It returns what the subject repeats meanwhile.
func (r *Run) settle(ctx context.Context) (quiet bool, busy []engine.Repeat) {
	begin := time.Now()
	r.rec.restart()
	for ctx.Err() == nil {
		r.progress()
		last, changes := r.rec.quietSince()
		still := time.Since(last)
		if still >= time.Minute {
			if busy := r.rec.busy(time.Minute); len(busy) > 0 {
				return false, busy
			}
		}
		if still >= calm && r.others.Idle() || r.settled(still) {
			return true, nil
		}
		if changes > tooMany || time.Since(begin) > tooLong {
			return false, nil
		}
		next := time.Minute
		if r.want != nil && still < brief {
			next = brief - still
		}
		_ = sleep(ctx.Done(), max(time.Second, min(calm-still, next)))
	}
	return false, nil
}

// settled reports whether the run has come to the end without faults, and nothing more is to be expected.
func (r *Run) settled(still time.Duration) bool {
	return r.want != nil && still >= brief && r.others.Idle() && r.rec.faultsOver(brief) && len(r.rec.busy(brief)) == 0 &&
		r.want.Equals(r.rec.state())
}

// Apply applies an object as "kubectl apply --server-side" does.
func (r *Run) Apply(ctx context.Context, obj *unstructured.Unstructured) error {
	c, err := r.of(obj.GroupVersionKind(), obj.GetNamespace())
	if err != nil {
		return err
	}
	b, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	force := true
	_, err = c.Patch(ctx, obj.GetName(), types.ApplyPatchType, b,
		metav1.PatchOptions{FieldManager: "workload", Force: &force})
	return err
}

// Patch applies a JSON merge patch.
func (r *Run) Patch(ctx context.Context, ref, patch, subresource string) error {
	c, name, err := r.at(ref)
	if err != nil {
		return err
	}
	var sub []string
	if subresource != "" {
		sub = append(sub, subresource)
	}
	_, err = c.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "workload"}, sub...)
	return err
}

// Delete deletes an object in the background, and does not wait until it is gone.
func (r *Run) Delete(ctx context.Context, ref string) error {
	c, name, err := r.at(ref)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	return c.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
}

// Object returns an object, or nil if it does not exist.
func (r *Run) Object(ref string) (*unstructured.Unstructured, error) {
	res, namespace, name, err := r.resolve(ref)
	if err != nil {
		return nil, err
	}
	return r.rec.object(key{res.GVR().GroupResource(), namespace, name}), nil
}

// Objects returns all objects of a resource.
func (r *Run) Objects(resource string) ([]*unstructured.Unstructured, error) {
	res, err := r.resource(resource)
	if err != nil {
		return nil, err
	}
	return r.rec.list(res.GVR().GroupResource()), nil
}

// touch writes an annotation to an object, as another client.
func (r *Run) touch(q request) {
	gvr := q.resource.WithVersion(q.version)
	var c dynamic.ResourceInterface = r.client.Resource(gvr)
	if q.namespace != "" {
		c = r.client.Resource(gvr).Namespace(q.namespace)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, engine.Touched, r.Elapsed())
	_, _ = c.Patch(context.Background(), q.name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "other"})
}

func (r *Run) at(ref string) (dynamic.ResourceInterface, string, error) {
	res, namespace, name, err := r.resolve(ref)
	if err != nil {
		return nil, "", err
	}
	if res.Namespaced {
		return r.client.Resource(res.GVR()).Namespace(namespace), name, nil
	}
	return r.client.Resource(res.GVR()), name, nil
}

func (r *Run) of(gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	for _, res := range r.server.Resources() {
		if res.GVK() != gvk {
			continue
		}
		if !res.Namespaced {
			return r.client.Resource(res.GVR()), nil
		}
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		return r.client.Resource(res.GVR()).Namespace(namespace), nil
	}
	return nil, fmt.Errorf("the model server does not know the kind %s; is its CustomResourceDefinition given?", gvk)
}

// resolve splits resource[.group]/[namespace/]name.
func (r *Run) resolve(ref string) (res apiserver.Resource, namespace, name string, err error) {
	parts := strings.Split(ref, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return res, "", "", fmt.Errorf("cannot read the reference %q: it is not resource/name or resource/namespace/name",
			ref)
	}
	if res, err = r.resource(parts[0]); err != nil {
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

// resource finds a resource by its plural, singular, short name or kind, with or without the group.
func (r *Run) resource(name string) (apiserver.Resource, error) {
	name = strings.ToLower(name)
	plural, group, qualified := strings.Cut(name, ".")
	for _, res := range r.server.Resources() {
		if qualified && res.Group != group {
			continue
		}
		for _, x := range append([]string{res.Resource, res.Singular, strings.ToLower(res.Kind)}, res.ShortNames...) {
			if x == plural {
				return res, nil
			}
		}
	}
	return apiserver.Resource{}, fmt.Errorf("the model server has no resource %q", name)
}

// IsGone reports the error of a request for an object that does not exist.
func IsGone(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsNotFound(err)
}
