package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Step is one step of a workload.
type Step struct {
	Name    string
	Play    func(ctx context.Context, r *Run) error
	deletes bool // an object
}

// BeforeDeletion returns the number of steps before the last one that deletes an object, or 0 if there is none.
func BeforeDeletion(steps []Step) int {
	for i, step := range slices.Backward(steps) {
		if step.deletes {
			return i
		}
	}
	return 0
}

// Apply returns a step that applies objects with server-side apply.
func Apply(name string, objects []*unstructured.Unstructured) Step {
	return Step{Name: name, Play: func(ctx context.Context, r *Run) error {
		for _, obj := range objects {
			err := r.served(ctx, func() error {
				_, err := r.kinds.of(obj.GroupVersionKind())
				return err
			})
			if err == nil {
				err = r.Apply(ctx, obj)
			}
			if err != nil {
				return fmt.Errorf("cannot apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
			}
		}
		return nil
	}}
}

// Patch returns a step that applies a JSON merge patch.
func Patch(object, patch string) Step {
	return onto("patch "+object, object, func(ctx context.Context, r *Run) error {
		return r.Patch(ctx, object, patch, "")
	})
}

// PatchStatus returns a step that applies a JSON merge patch to the status.
func PatchStatus(object, patch string) Step {
	return onto("patch the status of "+object, object, func(ctx context.Context, r *Run) error {
		return r.Patch(ctx, object, patch, "status")
	})
}

// Delete returns a step that deletes an object, and does not wait until it is gone.
func Delete(object string) Step {
	step := onto("delete "+object, object, func(ctx context.Context, r *Run) error { return r.Delete(ctx, object) })
	step.deletes = true
	return step
}

// onto returns a step that writes to an object as soon as its kind is served.
func onto(name, object string, write func(ctx context.Context, r *Run) error) Step {
	return Step{Name: name, Play: func(ctx context.Context, r *Run) error {
		err := r.served(ctx, func() error {
			_, _, _, err := r.kinds.resolve(object)
			return err
		})
		if err != nil {
			return err
		}
		return write(ctx, r)
	}}
}

// served waits until find does not miss a kind any more: the subject may yet create its definition.
func (r *Run) served(ctx context.Context, find func() error) error {
	if err := find(); !errors.As(err, new(*unservedError)) {
		return err
	}
	return r.Await(ctx, find)
}

// Await returns a step that waits until the condition returns nil.
func Await(name string, condition func(*Run) error) Step {
	return Step{Name: name, Play: func(ctx context.Context, r *Run) error {
		return r.Await(ctx, func() error { return condition(r) })
	}}
}

// AwaitCondition returns a step that waits until a condition has a status, for the present generation. An empty status
// is True.
func AwaitCondition(object, conditionType, status string) Step {
	name := "await " + conditionType + " of " + object
	if status == "" {
		status = "True"
	} else {
		name = "await " + conditionType + "=" + status + " of " + object
	}
	return Await(name, func(r *Run) error { return r.conditionIs(object, conditionType, status) })
}

// Exists returns a step that waits until an object exists.
func Exists(object string) Step {
	return Await("await "+object, func(r *Run) error {
		u, err := r.Object(object)
		if err == nil && u == nil {
			err = errors.New("it does not exist")
		}
		return err
	})
}

// Gone returns a step that waits until an object does not exist.
func Gone(object string) Step {
	return Await("await the end of "+object, func(r *Run) error {
		u, err := r.Object(object)
		if err == nil && u != nil {
			err = errors.New("it still exists")
		}
		return err
	})
}

// Wait returns a step that waits for a time on the clock of the run.
func Wait(d time.Duration) Step {
	return Step{Name: fmt.Sprintf("wait %s", d), Play: func(ctx context.Context, _ *Run) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
}

func (r *Run) conditionIs(object, conditionType, status string) error {
	u, err := r.Object(object)
	if err != nil {
		return err
	}
	if u == nil {
		return fmt.Errorf("%s does not exist", object)
	}
	return conditionIs(u, conditionType, status)
}

// conditionIs returns nil if the condition has the status, for the present generation if it names one.
func conditionIs(u *unstructured.Unstructured, conditionType, status string) error {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	others := ""
	for _, c := range conditions {
		m, ok := c.(map[string]any)
		if !ok {
			continue
		}
		if m["type"] != conditionType {
			if m["status"] == "True" {
				others += fmt.Sprintf("; %v is True", m["type"])
				if text, ok := m["message"].(string); ok && text != "" {
					others += ": " + text
				}
			}
			continue
		}
		if g, ok := m["observedGeneration"].(int64); ok && g < u.GetGeneration() {
			return fmt.Errorf("the condition %s is that of generation %d, not %d", conditionType, g, u.GetGeneration())
		}
		if got, _ := m["status"].(string); !strings.EqualFold(got, status) {
			return fmt.Errorf("the condition %s is %v: %v", conditionType, m["status"], m["message"])
		}
		return nil
	}
	return fmt.Errorf("there is no condition %s%s", conditionType, others)
}
