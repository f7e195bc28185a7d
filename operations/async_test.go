package operations_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

type teapot struct{}

func (teapot) Error() string   { return "short and stout" }
func (teapot) HTTPStatus() int { return http.StatusTeapot }

func TestAsync(t *testing.T) {
	b := setup(t)
	var refuse error
	began := 0
	handler := operations.Async(operations.AsyncOptions{Scheduler: b.Scheduler, WaitAtMost: time.Minute},
		func(ctx context.Context, _ *http.Request, id string) (operations.Request, error) {
			began++
			r := operations.Request{ID: id, Type: operations.Delete, Resource: operations.Resource{Type: "A/B", ID: "1"}}
			if refuse != nil {
				return r, refuse
			}
			_, err := b.Schedule(ctx, r)
			return r, err
		})
	ask := func(headers ...string) (*http.Response, operations.View) {
		t.Helper()
		req := httptest.NewRequestWithContext(b.ctx, http.MethodDelete, "/applications/1", nil)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Add(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		var v operations.View
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil && w.Code < 400 {
			t.Fatalf("%v: %s", err, w.Body)
		}
		return w.Result(), v
	}
	resp, v := ask("Prefer", "respond-async", "Idempotency-Key", "one")
	if resp.StatusCode != http.StatusAccepted || resp.Header.Get("Location") != "/operations/A%2FB/1" ||
		resp.Header.Get("Preference-Applied") != "respond-async" || v.OperationID != "one" ||
		v.Status != operations.InProgress {
		t.Errorf("respond-async: %+v %+v", resp, v)
	}
	if resp, _ := ask("Prefer", "respond-async", "Idempotency-Key", "two"); resp.StatusCode != http.StatusConflict ||
		resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("while another one is in progress: %+v", resp)
	}
	if resp, v := ask("Prefer", "handling=lenient, wait=0", "Idempotency-Key",
		"one"); resp.StatusCode != http.StatusAccepted || v.Status != operations.InProgress {
		t.Errorf("wait=0: %+v", resp)
	}
	b.finish(operations.Resource{Type: "A/B", ID: "1"}, v1alpha1.PhaseFailed)
	for _, prefer := range []string{"", "wait=10", `wait="10"`, "respond-async, wait=10", "nonsense;;=,"} {
		if resp, v := ask("Prefer", prefer, "Idempotency-Key", "one"); resp.StatusCode != http.StatusOK ||
			v.Status != operations.Failed || resp.Header.Get("Operation-Status") != "FAILED" {
			t.Errorf("%q after the end: %+v %+v", prefer, resp, v)
		}
	}
	if resp, v := ask("Prefer", "respond-async", "Idempotency-Key", "one"); resp.StatusCode != http.StatusAccepted ||
		v.Status != operations.Failed ||
		v.OperationID != "one" || resp.Header.Get("Retry-After") != "" || resp.Header.Get("Operation-Status") != "FAILED" {
		t.Errorf("respond-async after the end: %+v %+v", resp, v)
	}
	begun := began
	if resp, _ := ask("Prefer", "respond-async", "Idempotency-Key",
		"a.b"); resp.StatusCode != http.StatusUnprocessableEntity || began != begun {
		t.Errorf("an impossible key: %+v, started %v", resp, began != begun)
	}
	if resp, _ := ask("Prefer", "wait=1, respond-async"); resp.StatusCode != http.StatusAccepted ||
		resp.Header.Get("Preference-Applied") != "respond-async" {
		t.Errorf("not ended in time: %+v", resp)
	}
	for err, want := range map[error]int{
		teapot{}: http.StatusTeapot, operations.ErrIDReused: http.StatusUnprocessableEntity,
		operations.ErrInProgress:                   http.StatusConflict,
		&operations.InvalidError{}:                 http.StatusUnprocessableEntity,
		errors.New("password=hunter2"):             http.StatusInternalServerError,
		apierrors.NewTooManyRequests("hunter2", 7): http.StatusServiceUnavailable,
		apierrors.NewServiceUnavailable("hunter2"): http.StatusServiceUnavailable,
		apierrors.NewConflict(v1alpha1.OperationsResource.GroupResource(), "hunter2", nil): http.StatusServiceUnavailable,
		apierrors.NewTimeoutError("hunter2", 0):                                            http.StatusGatewayTimeout,
		context.DeadlineExceeded:                                                           http.StatusGatewayTimeout,
		apierrors.NewInternalError(errors.New("hunter2")):                                  http.StatusInternalServerError,
	} {
		refuse = err
		req := httptest.NewRequestWithContext(b.ctx, http.MethodDelete, "/applications/1", nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code != want || strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
		after, want := w.Header().Get("Retry-After"), map[bool]string{true: "1"}[w.Code == http.StatusServiceUnavailable]
		if apierrors.IsTooManyRequests(err) {
			want = "7"
		}
		if after != want {
			t.Errorf("%v: Retry-After %q, want %q", err, after, want)
		}
	}
}
