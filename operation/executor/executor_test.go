package executor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
	"github.com/fairlead-io/fairlead/operation/install"
	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
)

// bench is what a test of the executor works with: a namespace of its own on the real control plane.
type bench struct {
	t         *testing.T
	ctx       context.Context
	config    *rest.Config
	calls     *call.Client
	namespace string
	scheduler *operation.Scheduler
	receiver  *receiver
}

func setup(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	config := env.Config(t)
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	if err := install.CRDs(ctx, calls); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, ctx: ctx, config: config, calls: calls, namespace: env.Namespace(t), receiver: newReceiver(t)}
	if b.scheduler, err = operation.NewScheduler(operation.Options{Config: config, Calls: calls, Namespace: b.namespace}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.scheduler.Close)
	return b
}

// start runs an executor until stop is called or the test ends.
func (b *bench) start(change func(*executor.Options)) (stop func()) {
	b.t.Helper()
	return b.startWith(change, func(*executor.Executor) {})
}

// startWith is start that tells of the executor before it runs.
func (b *bench) startWith(change func(*executor.Options), made func(*executor.Executor)) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	var running sync.WaitGroup
	open := func(group, version, resource, kind string) *store.Store {
		gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		st := store.New(store.Options{Resource: gvr, Kind: gvr.GroupVersion().WithKind(kind), Namespaced: true})
		src, err := source.New(source.Config{REST: b.config, Resource: gvr, Namespaces: []string{b.namespace}}, st.Sink)
		if err != nil {
			b.t.Fatal(err)
		}
		running.Go(func() {
			defer st.Close()
			if err := src.Run(ctx); err != nil {
				b.t.Error(err)
			}
		})
		return st
	}
	o := executor.Options{
		Calls:      b.calls,
		Operations: open("fairlead.io", "v1alpha1", "operations", "Operation"),
		Webhooks:   open("fairlead.io", "v1alpha1", "webhooks", "Webhook"),
		Secrets:    open("", "v1", "secrets", "Secret"), AllowTargets: []string{"127.0.0.1"},
	}
	if os.Getenv("FAIRLEAD_TEST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if change != nil {
		change(&o)
	}
	e, err := executor.New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	made(e)
	running.Go(func() {
		if err := e.Run(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			b.t.Errorf("run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	b.t.Cleanup(stop)
	return stop
}

// webhook makes a Webhook of the test's receiver.
func (b *bench) webhook(name string, change func(*v1alpha1.WebhookSpec)) {
	b.t.Helper()
	w := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace}}
	w.Spec.Request.URL = b.receiver.URL + "/" + name
	w.Spec.Retry.InitialInterval = metav1.Duration{Duration: 10 * time.Millisecond}
	if change != nil {
		change(&w.Spec)
	}
	w.Default()
	b.create(v1alpha1.GroupVersion.WithResource("webhooks"), "Webhook", w)
}

func (b *bench) create(gvr schema.GroupVersionResource, kind string, obj runtime.Object) {
	b.t.Helper()
	_, err := call.Do(b.ctx, b.calls, call.Request{
		Verb: call.VerbCreate, Resource: gvr, Kind: kind, Namespace: b.namespace, Object: obj,
		Name: obj.(metav1.Object).GetName(),
	}, call.Policy{})
	if err != nil {
		b.t.Fatal(err)
	}
}

// schedule schedules an operation and waits for its end.
func (b *bench) run(r operation.Request) operation.View {
	b.t.Helper()
	if r.Resource.ID == "" {
		r.Resource = operation.Resource{Type: "Application", ID: "a1"}
	}
	if r.Type == "" {
		r.Type = operation.Delete
	}
	op, err := b.scheduler.Schedule(b.ctx, r)
	if err != nil {
		b.t.Fatal(err)
	}
	v, err := b.scheduler.Wait(b.ctx, r.Resource, op.EffectiveID(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// receiver counts calls and effects by idempotency key and answers as the test says.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	calls  map[string]int
	keys   []string
	answer func(w http.ResponseWriter, r *http.Request, path string, call int)
}

func newReceiver(t *testing.T) *receiver {
	rc := &receiver{calls: make(map[string]int)}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // a server notices that its client has gone only after that
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		rc.mu.Lock()
		key := r.Header.Get("Idempotency-Key")
		if rc.calls[key]++; rc.calls[key] == 1 {
			rc.keys = append(rc.keys, key)
		}
		n, answer := rc.calls[key], rc.answer
		rc.mu.Unlock()
		if answer == nil {
			w.WriteHeader(http.StatusOK)
			return
		}
		answer(w, r, r.URL.Path, n)
	}))
	t.Cleanup(rc.Close)
	return rc
}

func TestOperation(t *testing.T) {
	type want struct {
		status operation.Status
		reason string
		calls  map[string]int // by idempotency key without the operation id
	}
	tests := map[string]struct {
		reason   string
		webhooks map[string]func(*v1alpha1.WebhookSpec)
		request  operation.Request
		answer   func(w http.ResponseWriter, r *http.Request, path string, call int)
		want     want
	}{
		"NoWebhook": {
			reason: "Without webhooks there is nothing to wait for.",
			want:   want{status: operation.Succeeded},
		},
		"Sync": {
			reason:   "One good answer is success.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": nil},
			request:  operation.Request{Webhooks: []string{"cleanup"}},
			want:     want{status: operation.Succeeded, calls: map[string]int{"cleanup": 1}},
		},
		"FailsTwiceThenSucceeds": {
			reason:   "503 is tried again, with the same key.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": nil},
			request:  operation.Request{Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, call int) {
				if call <= 2 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			},
			want: want{status: operation.Succeeded, calls: map[string]int{"cleanup": 3}},
		},
		"Sequence": {
			reason:   "The second webhook is called after the first one succeeded, and not when it failed.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"a": nil, "b": nil},
			request:  operation.Request{Webhooks: []string{"a", "b"}},
			answer: func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
				if path == "/a" {
					w.WriteHeader(http.StatusBadRequest)
				}
			},
			want: want{status: operation.Failed, reason: v1alpha1.ReasonWebhookFailed, calls: map[string]int{"a": 1}},
		},
		"Parallel": {
			reason:   "Parallel webhooks are all called.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"a": nil, "b": nil, "c": nil},
			request:  operation.Request{Webhooks: []string{"a", "b", "c"}, Execution: operation.Parallel},
			want:     want{status: operation.Succeeded, calls: map[string]int{"a": 1, "b": 1, "c": 1}},
		},
		"CompensateAndNotify": {
			reason:   "What succeeded is compensated, and the outcome is told.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"a": nil, "b": nil, "undo": nil, "tell": nil},
			request:  operation.Request{Webhooks: []string{"a", "b"}, Compensate: []string{"undo"}, Notify: "tell"},
			answer: func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
				if path == "/b" {
					w.WriteHeader(http.StatusBadRequest)
				}
			},
			want: want{
				status: operation.Failed, reason: v1alpha1.ReasonWebhookFailed,
				calls: map[string]int{"a": 1, "b": 1, "undo.compensate": 1, "tell.notify": 1},
			},
		},
		"RetriesExhausted": {
			reason: "The last try decides.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Retry.MaxAttempts = 3
			}},
			request: operation.Request{Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.WriteHeader(http.StatusServiceUnavailable)
			},
			want: want{status: operation.Failed, reason: v1alpha1.ReasonRetriesExhausted, calls: map[string]int{"cleanup": 3}},
		},
		"Gone": {
			reason:   "For a Delete, what is gone is deleted.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": nil},
			request:  operation.Request{Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.WriteHeader(http.StatusGone)
			},
			want: want{status: operation.Succeeded, calls: map[string]int{"cleanup": 1}},
		},
		"GoneForCreate": {
			reason:   "For a Create, gone is a failure.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": nil},
			request:  operation.Request{Type: operation.Create, Webhooks: []string{"cleanup"}},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.WriteHeader(http.StatusGone)
			},
			want: want{status: operation.Failed, reason: v1alpha1.ReasonWebhookFailed, calls: map[string]int{"cleanup": 1}},
		},
		"Async": {
			reason: "The answer names a URL, which is polled until it is done.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"slow": func(s *v1alpha1.WebhookSpec) {
				s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: 20 * time.Millisecond}
			}},
			request: operation.Request{Webhooks: []string{"slow"}},
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
			want: want{status: operation.Succeeded, calls: map[string]int{"slow": 4}},
		},
		"InvalidTemplate": {
			reason: "A template that cannot be rendered ends the operation at once, and the field is named.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Request.URL = "{{.Nothing}}"
			}},
			request: operation.Request{Webhooks: []string{"cleanup"}},
			want:    want{status: operation.Failed, reason: v1alpha1.ReasonInvalid},
		},
		"Refused": {
			reason: "Targets that are not allowed are refused when connecting.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Request.URL = "http://169.254.169.254/latest"
			}},
			request: operation.Request{Webhooks: []string{"cleanup"}},
			want:    want{status: operation.Failed, reason: v1alpha1.ReasonTargetRefused},
		},
		"TimedOut": {
			reason: "The timeout of the operation ends it whatever the receiver does.",
			webhooks: map[string]func(*v1alpha1.WebhookSpec){"cleanup": func(s *v1alpha1.WebhookSpec) {
				s.Retry.InitialInterval = metav1.Duration{Duration: time.Hour}
				s.Retry.MaxInterval = metav1.Duration{Duration: time.Hour}
			}},
			request: operation.Request{Webhooks: []string{"cleanup"}, Timeout: 2 * time.Second},
			answer: func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
			},
			want: want{status: operation.Failed, reason: v1alpha1.ReasonTimedOut, calls: map[string]int{"cleanup": 1}},
		},
		"MissingWebhook": {
			reason:  "A Webhook that does not exist is waited for until the deadline.",
			request: operation.Request{Webhooks: []string{"nowhere"}, Timeout: time.Second},
			want:    want{status: operation.Failed, reason: v1alpha1.ReasonWebhookNotFound},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.receiver.answer = tc.answer
			for name, change := range tc.webhooks {
				b.webhook(name, change)
			}
			b.start(nil)
			v := b.run(tc.request)
			if diff := cmp.Diff([]any{tc.want.status, tc.want.reason}, []any{v.Status, v.Reason}); diff != "" {
				t.Errorf("%s\n-want +got:\n%s\n%s", tc.reason, diff, v.Error)
			}
			if diff := cmp.Diff(tc.want.calls, b.receiver.counts(v.OperationID), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s\ncalls: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// counts returns the calls of an operation by what follows its id in the key.
func (rc *receiver) counts(operationID string) map[string]int {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	out := make(map[string]int)
	for key, n := range rc.calls {
		if rest, ok := strings.CutPrefix(key, operationID+"."); ok {
			out[rest] = n
		}
	}
	return out
}
