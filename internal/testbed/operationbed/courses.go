package operationbed

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// PlayCourses runs one operation of each kind to its end and checks the outcome and the calls. setup returns a new
// bench.
func PlayCourses(t *testing.T, setup func(t *testing.T) *Bench) {
	t.Helper()
	type want struct {
		status operations.Status
		reason string
		calls  map[string]int // by idempotency key without the operation ID
	}
	tests := map[string]struct {
		reason   string
		webhooks map[string]func(*v1alpha1.WebhookSpec)
		request  operations.Request
		answer   func(w http.ResponseWriter, r *http.Request, path string, call int)
		want     want
	}{
		"NoWebhook": {
			reason: "Without webhooks there is nothing to wait for.",
			want:   want{status: operations.Succeeded},
		},
		"Sync": {
			reason:   "One good answer is success.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": nil},
			request:  operations.Request{Webhooks: []string{"cleanup"}},
			want:     want{status: operations.Succeeded, calls: map[string]int{"cleanup": 1}},
		},
		"FailsTwiceThenSucceeds": {
			reason:   "503 is tried again, with the same key.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": nil},
			request:  operations.Request{Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, call int) {
				if call <= 2 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			},
			want: want{status: operations.Succeeded, calls: map[string]int{"cleanup": 3}},
		},
		"Sequence": {
			reason:   "The second webhook is called after the first one succeeded, and not when it failed.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"a": nil, "b": nil},
			request:  operations.Request{Webhooks: []string{"a", "b"}},
			answer: func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
				if path == "/a" {
					w.WriteHeader(http.StatusBadRequest)
				}
			},
			want: want{status: operations.Failed, reason: v1alpha1.ReasonWebhookFailed, calls: map[string]int{"a": 1}},
		},
		"Parallel": {
			reason:   "Parallel webhooks are all called.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"a": nil, "b": nil, "c": nil},
			request:  operations.Request{Webhooks: []string{"a", "b", "c"}, Execution: operations.Parallel},
			want:     want{status: operations.Succeeded, calls: map[string]int{"a": 1, "b": 1, "c": 1}},
		},
		"CompensateAndNotify": {
			reason:   "What succeeded is compensated, and the outcome is told.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"a": nil, "b": nil, "undo": nil, "tell": nil},
			request:  operations.Request{Webhooks: []string{"a", "b"}, Compensate: []string{"undo"}, Notify: "tell"},
			answer: func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
				if path == "/b" {
					w.WriteHeader(http.StatusBadRequest)
				}
			},
			want: want{
				status: operations.Failed, reason: v1alpha1.ReasonWebhookFailed,
				calls: map[string]int{"a": 1, "b": 1, "undo.compensate": 1, "tell.notify": 1},
			},
		},
		"NotificationFails": {
			reason: "What becomes of the notification changes no outcome.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){
				"a": nil, "tell": func(s *v1alpha1.WebhookSpec) { s.Retry.MaxAttempts = 2 },
			},
			request: operations.Request{Webhooks: []string{"a"}, Compensate: []string{"a"}, Notify: "tell"},
			answer: func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
				if path == "/tell" {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			},
			want: want{status: operations.Succeeded, calls: map[string]int{"a": 1, "tell.notify": 2}},
		},
		"CompensationFails": {
			reason: "The reason stays that of the failure, and the next compensation runs.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){
				"a": nil, "b": func(s *v1alpha1.WebhookSpec) { s.Retry.MaxAttempts = 2 }, "undo": nil, "next": nil,
			},
			request: operations.Request{Webhooks: []string{"a", "b"}, Compensate: []string{"undo", "next"}},
			answer: func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
				switch path {
				case "/b":
					w.WriteHeader(http.StatusServiceUnavailable)
				case "/undo":
					w.WriteHeader(http.StatusBadRequest)
				}
			},
			want: want{
				status: operations.Failed, reason: v1alpha1.ReasonRetriesExhausted,
				calls: map[string]int{"a": 1, "b": 2, "undo.compensate": 1, "next.compensate": 1},
			},
		},
		"NothingToCompensate": {
			reason:   "Without a success there is nothing to undo.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"a": nil, "undo": nil},
			request:  operations.Request{Webhooks: []string{"a"}, Compensate: []string{"undo"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.WriteHeader(http.StatusBadRequest)
			},
			want: want{status: operations.Failed, reason: v1alpha1.ReasonWebhookFailed, calls: map[string]int{"a": 1}},
		},
		"InvalidExpression": {
			reason: "An expression that cannot be compiled is found before the call.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Poll.Failed = "response.body.("
			}},
			request: operations.Request{Webhooks: []string{"cleanup"}},
			want:    want{status: operations.Failed, reason: v1alpha1.ReasonInvalid},
		},
		"ExpressionFailsOnThisAnswer": {
			reason: "One that does not fit the answer is a failure of the call.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Response.Success = "response.body.ok"
			}},
			request: operations.Request{Webhooks: []string{"cleanup"}},
			answer:  func(w http.ResponseWriter, _ *http.Request, _ string, _ int) { _, _ = w.Write([]byte("fine")) },
			want:    want{status: operations.Failed, reason: v1alpha1.ReasonWebhookFailed, calls: map[string]int{"cleanup": 1}},
		},
		"ErrorTextOfASuccess": {
			reason: "A success with an error text is a failure.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Response.Error = "response.body.error"
			}},
			request: operations.Request{Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				_, _ = w.Write([]byte(`{"error":"half of it"}`))
			},
			want: want{status: operations.Failed, reason: v1alpha1.ReasonWebhookFailed, calls: map[string]int{"cleanup": 1}},
		},
		"Redirect": {
			reason:   "A redirect is not followed, and is no success.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": nil},
			request:  operations.Request{Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
				http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			},
			want: want{status: operations.Failed, reason: v1alpha1.ReasonWebhookFailed, calls: map[string]int{"cleanup": 1}},
		},
		"RetriesExhausted": {
			reason: "The last try decides.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Retry.MaxAttempts = 3
			}},
			request: operations.Request{Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.WriteHeader(http.StatusServiceUnavailable)
			},
			want: want{status: operations.Failed, reason: v1alpha1.ReasonRetriesExhausted, calls: map[string]int{"cleanup": 3}},
		},
		"Gone": {
			reason:   "For a Delete, what is gone is deleted.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": nil},
			request:  operations.Request{Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.WriteHeader(http.StatusGone)
			},
			want: want{status: operations.Succeeded, calls: map[string]int{"cleanup": 1}},
		},
		"GoneForCreate": {
			reason:   "For a Create, gone is a failure.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": nil},
			request:  operations.Request{Type: operations.Create, Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.WriteHeader(http.StatusGone)
			},
			want: want{status: operations.Failed, reason: v1alpha1.ReasonWebhookFailed, calls: map[string]int{"cleanup": 1}},
		},
		"Async": {
			reason: "The answer names a URL, which is polled until it is done.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"slow": func(s *v1alpha1.WebhookSpec) {
				s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: webhook.MinInterval}
			}},
			request: operations.Request{Webhooks: []string{"slow"}},
			answer: func(w http.ResponseWriter, r *http.Request, path string, call int) {
				switch {
				case path == "/slow":
					w.Header().Set("Location", "/jobs/1")
					w.WriteHeader(http.StatusAccepted)
				case call < 4:
					_, _ = w.Write([]byte(`{"status":"IN_PROGRESS"}`))
				default:
					_, _ = w.Write([]byte(`{"status":"SUCCEEDED"}`))
				}
			},
			want: want{status: operations.Succeeded, calls: map[string]int{"slow": 4}},
		},
		"InvalidTemplate": {
			reason: "A template that cannot be rendered ends the operation at once, and the field is named.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Request.URL = "{{.Nothing}}"
			}},
			request: operations.Request{Webhooks: []string{"cleanup"}},
			want:    want{status: operations.Failed, reason: v1alpha1.ReasonInvalid},
		},
		"Refused": {
			reason: "Targets that are not allowed are refused when connecting.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Request.URL = "http://169.254.169.254/latest"
			}},
			request: operations.Request{Webhooks: []string{"cleanup"}},
			want:    want{status: operations.Failed, reason: v1alpha1.ReasonTargetRefused},
		},
		"TimedOut": {
			reason: "The timeout of the operation ends it whatever the receiver does.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Retry.InitialInterval = metav1.Duration{Duration: time.Hour}
				s.Retry.MaxInterval = metav1.Duration{Duration: time.Hour}
			}},
			request: operations.Request{Webhooks: []string{"cleanup"}, Timeout: 2 * time.Second},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
			},
			want: want{status: operations.Failed, reason: v1alpha1.ReasonTimedOut, calls: map[string]int{"cleanup": 1}},
		},
		"MissingWebhook": {
			reason:  "A Webhook that does not exist is waited for until the deadline.",
			request: operations.Request{Webhooks: []string{"nowhere"}, Timeout: time.Second},
			want:    want{status: operations.Failed, reason: v1alpha1.ReasonWebhookNotFound},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.Receiver.Answer = tc.answer
			for name, change := range tc.webhooks {
				b.Webhook(name, change)
			}
			b.Start(nil)
			v := b.Run(tc.request)
			for len(tc.want.calls) > 0 && tc.request.Timeout > 0 && len(b.Receiver.Counts(v.OperationID)) == 0 {
				tc.request.Timeout *= 2 // the deadline passed before the first call
				v = b.Run(tc.request)
			}
			if diff := cmp.Diff([]any{tc.want.status, tc.want.reason}, []any{v.Status, v.Reason}); diff != "" {
				t.Errorf("%s\n-want +got:\n%s\n%s", tc.reason, diff, v.Error)
			}
			if diff := cmp.Diff(tc.want.calls, b.Receiver.Counts(v.OperationID), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s\ncalls: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
