package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// writer schedules and cancels operations. Its only state is in keys.
type writer struct {
	scheduler *operations.Scheduler
	admitter  *admitter
	keys      *keys
	locator   locator
}

// schedule requires the right to create. It also requires update to replace an ended operation, and get to show another
// request than this one.
func (t *writer) schedule(w http.ResponseWriter, r *http.Request, a admission) error {
	spec, err := readSpec(w, r, &a.wrong)
	if err == nil {
		err = a.wrong.problem()
	}
	if err != nil {
		return err
	}
	res := operations.Resource{Type: spec.ResourceType, ID: spec.ResourceID}
	var op *v1alpha1.Operation
	if spec.OperationID != "" {
		ours, done := t.keys.claim(keyOf{a.namespace, spec.OperationID}, res)
		if !ours {
			return operations.ErrIDReused
		}
		defer func() { done(op != nil || maybeWritten(err)) }()
	}
	replacing := t.scheduler.In(a.namespace).BeforeReplacing(func(context.Context, *v1alpha1.Operation) error {
		return t.admitter.authorize(r.Context(), a, "update")
	})
	op, err = replacing.ScheduleSpec(r.Context(), spec)
	var running *operations.InProgressError
	if errors.As(err, &running) && t.admitter.authorize(r.Context(), a, "get") != nil {
		return &Problem{
			Status: http.StatusConflict, Title: titleInProgress,
			Detail: "wait for its end; callers who may get operations see which one it is",
		}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", t.locator.location(a.namespace, res))
	if op.PickedUp() && t.admitter.authorize(r.Context(), a, "get") != nil {
		// A repeated request: give its first answer again.
		op = &v1alpha1.Operation{ObjectMeta: op.ObjectMeta, Spec: spec}
	}
	show(w, http.StatusAccepted, op)
	return nil
}

// maybeWritten reports whether an operation may exist despite the error.
func maybeWritten(err error) bool {
	var refused *Problem
	var invalid *operations.InvalidError
	var running *operations.InProgressError
	return !errors.As(err, &refused) && !errors.As(err, &invalid) && !errors.As(err, &running) &&
		!apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)
}

const cancelVerb = ":cancel"

// onlyCancel refuses a POST that is not for :cancel, before any authorization.
func onlyCancel(cancel endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		if strings.HasSuffix(r.PathValue("id"), cancelVerb) {
			return cancel(w, r)
		}
		w.Header().Set("Allow", "GET, HEAD")
		return &Problem{
			Status: http.StatusMethodNotAllowed, Title: "Method Not Allowed",
			Detail: "POST is for …/{resourceID}:cancel; GET shows an operation, POST /operations schedules one",
		}
	}
}

// cancel requires the right to update, and get to show the operation.
func (t *writer) cancel(w http.ResponseWriter, r *http.Request, a admission) error {
	if err := a.wrong.problem(); err != nil {
		return err
	}
	res := operations.Resource{Type: r.PathValue("type"), ID: strings.TrimSuffix(r.PathValue("id"), cancelVerb)}
	op, err := t.scheduler.In(a.namespace).Cancel(r.Context(), res, "")
	if err != nil {
		return err
	}
	w.Header().Set("Location", t.locator.location(a.namespace, res))
	if t.admitter.authorize(r.Context(), a, "get") != nil {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	show(w, http.StatusAccepted, op)
	return nil
}
