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

// schedule requires the right to create. It also requires update to replace an ended operation, and get to show another
// request than this one.
func (h *handler) schedule(w http.ResponseWriter, r *http.Request, a admission) error {
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
		ours, done := h.keys.claim(keyOf{a.namespace, spec.OperationID}, res)
		if !ours {
			return operations.ErrIDReused
		}
		defer func() { done(op != nil || maybeWritten(err)) }()
	}
	replacing := h.Scheduler.In(a.namespace).BeforeReplacing(func(context.Context, *v1alpha1.Operation) error {
		return h.may(r, a, "update")
	})
	op, err = replacing.ScheduleSpec(r.Context(), spec)
	var running *operations.InProgressError
	if errors.As(err, &running) && h.may(r, a, "get") != nil {
		return &Problem{
			Status: http.StatusConflict, Title: titleInProgress,
			Detail: "wait for its end; who may get operations is told which one it is",
		}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", h.location(a.namespace, res))
	if op.PickedUp() && h.may(r, a, "get") != nil { // a repeated request: give its first answer again
		op = &v1alpha1.Operation{ObjectMeta: op.ObjectMeta, Spec: spec}
	}
	h.show(w, http.StatusAccepted, op)
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

// canceling refuses a POST that is not for :cancel, before any authorization.
func (h *handler) canceling(next http.Handler) http.Handler {
	other := h.plain(func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Allow", "GET, HEAD")
		return &Problem{
			Status: http.StatusMethodNotAllowed, Title: "Method Not Allowed",
			Detail: "POST is for …/{resourceID}:cancel; GET shows an operation, POST /operations schedules one",
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.PathValue("id"), cancelVerb) {
			next.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}

// cancel requires the right to update, and get to show the operation.
func (h *handler) cancel(w http.ResponseWriter, r *http.Request, a admission) error {
	if err := a.wrong.problem(); err != nil {
		return err
	}
	res := operations.Resource{Type: r.PathValue("type"), ID: strings.TrimSuffix(r.PathValue("id"), cancelVerb)}
	op, err := h.Scheduler.In(a.namespace).Cancel(r.Context(), res, "")
	if err != nil {
		return err
	}
	w.Header().Set("Location", h.location(a.namespace, res))
	if h.may(r, a, "get") != nil {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	h.show(w, http.StatusAccepted, op)
	return nil
}
