package operations

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// oneObject implements objects with at most one Operation, as an API server would.
type oneObject struct {
	op      *v1alpha1.Operation // nil: none
	version int
	before  func() // called before each write; nil: nothing
	patches []string
	large   int // patches that are refused as too large
}

// put stores a change of another writer.
func (o *oneObject) put(change func(*v1alpha1.Operation)) {
	change(o.op)
	o.stored(o.op)
}

func (o *oneObject) stored(op *v1alpha1.Operation) *v1alpha1.Operation {
	o.version++
	o.op = op.DeepCopy()
	o.op.ResourceVersion = strconv.Itoa(o.version)
	return o.op.DeepCopy()
}

func (o *oneObject) read(context.Context, string) (*v1alpha1.Operation, error) {
	if o.op == nil {
		return nil, nil
	}
	return o.op.DeepCopy(), nil
}

func (o *oneObject) write(_ context.Context, verb call.Verb, op *v1alpha1.Operation) (*v1alpha1.Operation, error) {
	if o.before != nil {
		o.before()
	}
	of := operations.GroupResource()
	switch {
	case verb == call.VerbCreate && o.op != nil:
		return nil, apierrors.NewAlreadyExists(of, op.Name)
	case verb == call.VerbUpdate && o.op == nil:
		return nil, apierrors.NewNotFound(of, op.Name)
	case verb == call.VerbUpdate && op.ResourceVersion != o.op.ResourceVersion:
		return nil, apierrors.NewConflict(of, op.Name, errors.New("another version"))
	}
	return o.stored(op), nil
}

func (o *oneObject) patch(_ context.Context, name string, body []byte) (*v1alpha1.Operation, error) {
	if o.before != nil {
		o.before()
	}
	o.patches = append(o.patches, string(body))
	var patch struct {
		Metadata struct{ ResourceVersion string }
		Spec     struct{ CancelRequested bool }
	}
	switch err := json.Unmarshal(body, &patch); {
	case err != nil:
		return nil, err
	case o.large > 0:
		o.large--
		return nil, call.ErrTooLarge
	case patch.Metadata.ResourceVersion != o.op.ResourceVersion:
		return nil, apierrors.NewConflict(operations.GroupResource(), name, errors.New("another version"))
	}
	op := o.op.DeepCopy()
	op.Spec.CancelRequested = patch.Spec.CancelRequested
	return o.stored(op), nil
}

func specOf(id string) v1alpha1.OperationSpec {
	return v1alpha1.OperationSpec{
		OperationID: id, OperationType: Update,
		ResourceReference: v1alpha1.ResourceReference{ResourceType: "app", ResourceID: "1"},
	}
}

// ended is an object whose operation has ended.
func ended(id string, phase v1alpha1.Phase) *oneObject {
	o := &oneObject{}
	op := &v1alpha1.Operation{Spec: specOf(id)}
	op.Default()
	op.Status.OperationID, op.Status.OperationType, op.Status.Phase = id, Update, phase
	now := metav1.NowMicro()
	op.Status.FinishedAt = &now
	o.stored(op)
	return o
}

// TestScheduleInRaces: an ended operation is replaced by exactly one request, whatever other writers do.
func TestScheduleInRaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start  func() *oneObject
		before func(o *oneObject, n int) // before the n-th write
		refuse bool                      // the caller may not replace
		want   string                    // the id of the result; empty: the error
		err    error
	}{
		"None":     {start: func() *oneObject { return &oneObject{} }, want: "new"},
		"Replaced": {start: func() *oneObject { return ended("old", v1alpha1.PhaseSuccess) }, want: "new"},
		"Refused": {
			start: func() *oneObject { return ended("old", v1alpha1.PhaseSuccess) }, refuse: true, err: errNotAllowed,
		},
		"Touched": {
			start: func() *oneObject { return ended("old", v1alpha1.PhaseSuccess) }, want: "new",
			before: func(o *oneObject, n int) {
				if n == 2 || n == 4 { // the updates of the first two rounds
					o.put(func(op *v1alpha1.Operation) { op.Labels = map[string]string{"n": strconv.Itoa(n)} })
				}
			},
		},
		"Overtaken": {
			start: func() *oneObject { return ended("old", v1alpha1.PhaseSuccess) }, err: ErrInProgress,
			before: func(o *oneObject, n int) {
				if n == 2 {
					o.put(func(op *v1alpha1.Operation) { op.Spec.OperationID = "other" })
				}
			},
		},
		"Deleted": {
			start: func() *oneObject { return ended("old", v1alpha1.PhaseSuccess) }, want: "new",
			before: func(o *oneObject, n int) {
				if n == 2 {
					o.op = nil
				}
			},
		},
		"Repeated": {start: func() *oneObject { return ended("new", v1alpha1.PhaseFailed) }, want: "new"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o, writes := c.start(), 0
				o.before = func() {
					if writes++; c.before != nil {
						c.before(o, writes)
					}
				}
				op, err := schedule(t.Context(), o, "ns", specOf("new"), func(context.Context, *v1alpha1.Operation) error {
					if c.refuse {
						return errNotAllowed
					}
					return nil
				})
				if c.want == "" {
					if !errors.Is(err, c.err) {
						t.Errorf("got %v, want %v", err, c.err)
					}
					return
				}
				if err != nil || op.EffectiveID() != c.want || o.op.EffectiveID() != c.want {
					t.Errorf("got %v and %v, want %s", op, err, c.want)
				}
			})
		})
	}
}

var errNotAllowed = errors.New("not allowed")

// TestCancelOfALargeObject: a cancellation removes only as much of a full object as it needs. It does so only for the
// version that it has read.
func TestCancelOfALargeObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := ended("one", v1alpha1.PhaseSuccess)
		o.put(func(op *v1alpha1.Operation) { op.Spec.OperationID = "two" })
		o.large = 2
		first := true
		o.before = func() {
			if first { // the executor writes meanwhile
				first = false
				o.put(func(op *v1alpha1.Operation) { op.Labels = map[string]string{"a": "b"} })
			}
		}
		op, err := cancel(t.Context(), o, "name", "")
		if err != nil || !op.Spec.CancelRequested || op.EffectiveID() != "two" {
			t.Fatalf("got %v and %v", op, err)
		}
		var levels []int
		for _, body := range o.patches {
			var patch map[string]map[string]any
			if err := json.Unmarshal([]byte(body), &patch); err != nil {
				t.Fatal(err)
			}
			levels = append(levels, len(patch["metadata"])+len(patch["spec"]))
		}
		// Each refusal removes more; after the conflict the removal starts again with the new version.
		if len(levels) != 4 || levels[0] != 2 || levels[1] != 3 || levels[2] != 5 || levels[3] != 2 {
			t.Errorf("the patches have %v members: %q", levels, o.patches)
		}
		if _, err := cancel(t.Context(), ended("one", v1alpha1.PhaseFailed), "name", "one"); !errors.Is(err, ErrEnded) {
			t.Errorf("got %v for an ended operation", err)
		}
		if _, err := cancel(t.Context(), &oneObject{}, "name", ""); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v for no operation", err)
		}
	})
}

// TestRetryIsOneRequest: of two retries of a failed operation only the first one schedules.
func TestRetryIsOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := ended("one", v1alpha1.PhaseFailed)
		overtaken := false
		o.before = func() {
			if !overtaken {
				overtaken = true
				if op, err := retry(t.Context(), o, "name"); err != nil || op.EffectiveID() == "one" {
					t.Errorf("the first got %v and %v", op, err)
				}
			}
		}
		if _, err := retry(t.Context(), o, "name"); !errors.Is(err, ErrFollowed) {
			t.Errorf("the second got %v, want ErrFollowed", err)
		}
		if _, err := retry(t.Context(), ended("one", v1alpha1.PhaseSuccess), "name"); !errors.Is(err, ErrSucceeded) {
			t.Errorf("got %v for a success", err)
		}
	})
}
