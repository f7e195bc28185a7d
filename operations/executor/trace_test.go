package executor_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// in schedules an operation in a span of that name, and ends the span.
func (b *bench) in(made *spans.Recorder, name string, r operations.Request) *v1alpha1.Operation {
	b.T.Helper()
	ctx, span := made.Start(b.Ctx, name)
	defer span.End()
	caller := *b.Bench
	caller.Ctx = ctx
	return caller.Schedule(r)
}

// traced makes an executor record spans, also of its requests to the API server.
func (b *bench) traced(made *spans.Recorder) func(*executor.Options) {
	b.T.Helper()
	calls, err := call.New(call.Options{Config: b.Config, TracerProvider: made})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(calls.Close)
	return func(o *executor.Options) { o.TracerProvider, o.Calls = made, calls }
}

// heard collects the trace headers of the receiver's calls, one entry for each call. A 503 asks to wait retryAfter
// seconds, unless that is empty.
func (b *bench) heard(retryAfter string, answer func(n int) int) func() []http.Header {
	b.T.Helper()
	var mu sync.Mutex
	var all []http.Header
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, n int) {
		mu.Lock()
		all = append(all, r.Header.Clone())
		mu.Unlock()
		status := answer(n)
		if status == http.StatusServiceUnavailable && retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	}
	return func() []http.Header {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func carries(h http.Header, s spans.Span) bool {
	return h.Get("Traceparent") == "00-"+s.SpanContext().TraceID().String()+"-"+s.SpanContext().SpanID().String()+"-01"
}

// under reports whether a span is a descendant of another one.
func under(made *spans.Recorder, s, above spans.Span) bool {
	for range 10 {
		if s.Parent().SpanID() == above.SpanContext().SpanID() {
			return s.SpanContext().TraceID() == above.SpanContext().TraceID()
		}
		i := slices.IndexFunc(made.Ended(), func(p spans.Span) bool { return spans.Same(s.Parent(), p) })
		if i < 0 {
			return false
		}
		s = made.Ended()[i]
	}
	return false
}

// TestTheTraceOfAnOperation: one trace leads from the scheduling caller to the receiver, and includes the requests to
// the API server.
func TestTheTraceOfAnOperation(t *testing.T) {
	b := setup(t)
	heard := b.heard("", func(n int) int { return map[bool]int{true: 503, false: 200}[n == 1] })
	b.Webhook("cleanup", nil)
	made := spans.New()
	stop := b.Start(b.traced(made))
	op := b.in(made, "caller", operations.Request{
		Webhooks: []string{"cleanup"}, CorrelationID: "corr-1", Object: map[string]string{"secret": "hidden"},
	})
	got := b.End(op)
	made.Await(t, "operation", 1) // the write may precede the end of the flow
	stop()
	caller, whole, calls := made.Named("caller")[0], made.Named("operation"), made.Named("call cleanup")
	if len(whole) != 1 || !spans.IsChild(whole[0], caller) || len(calls) != 2 {
		t.Fatalf("%v", made.Names())
	}
	for i, c := range calls {
		if !under(made, c, whole[0]) || !carries(heard()[i], c) {
			t.Errorf("call %d is not below the operation, or the receiver got %v", i, heard()[i])
		}
	}
	if l := calls[1].Links(); len(calls[0].Links()) != 0 || len(l) != 1 || !spans.Same(l[0].SpanContext, calls[0]) {
		t.Errorf("the second try links to %v", l)
	}
	writes := slices.DeleteFunc(made.Named("update operations/status"), func(s spans.Span) bool {
		return !under(made, s, whole[0])
	})
	if len(writes) == 0 {
		t.Errorf("no write is below the operation: %v", made.Names())
	}
	for key, want := range map[string]string{
		"operation.id": op.EffectiveID(), "operation.name": op.Name, "operation.type": "Delete",
		"k8s.namespace.name": b.Namespace, "operation.resource.type": shop.Type, "operation.resource.id": shop.ID,
		"operation.correlation_id": "corr-1", "flow.status": "completed",
	} {
		if v := spans.Value(whole[0], key); v != want {
			t.Errorf("%s is %q, want %q", key, v, want)
		}
	}
	if !strings.Contains(got.Status.TraceParent, caller.SpanContext().TraceID().String()) {
		t.Errorf("the status has the trace %q", got.Status.TraceParent)
	}
	for _, s := range made.Ended() {
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.String(), "hidden") {
				t.Errorf("%s tells %s: %s", s.Name(), a.Key, a.Value.String())
			}
		}
	}
}

// TestTheSpanOfAnOperationHasItsOutcome: a failed operation can be found by its span status, which does not contain the
// receiver's text.
func TestTheSpanOfAnOperationHasItsOutcome(t *testing.T) {
	tests := map[string]struct {
		reason string
		answer int
		ttl    time.Duration // the run waits this long after the end
		want   map[string]string
		status codes.Code
	}{
		"Failed": {
			reason: "A refusal fails the operation.", answer: http.StatusBadRequest, status: codes.Error,
			want: map[string]string{
				"operation.phase": "Failed", "operation.reason": v1alpha1.ReasonWebhookFailed,
				"error.type": v1alpha1.ReasonWebhookFailed,
			},
		},
		"FailedAndKept": {
			reason: "The run outlives the outcome.", answer: http.StatusBadRequest, ttl: time.Hour, status: codes.Error,
			want: map[string]string{"operation.phase": "Failed", "operation.reason": v1alpha1.ReasonWebhookFailed},
		},
		"Succeeded": {
			reason: "A success has a phase only.", answer: http.StatusOK, status: codes.Unset,
			want: map[string]string{"operation.phase": "Success", "operation.reason": "", "error.type": ""},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
				w.WriteHeader(tt.answer)
				_, _ = w.Write([]byte(`{"message":"words of the receiver"}`))
			}
			b.Webhook("cleanup", nil)
			made := spans.New()
			var e *executor.Executor
			stop := b.StartWith(b.traced(made), func(made *executor.Executor) { e = made })
			r := operations.Request{Webhooks: []string{"cleanup"}}
			if tt.ttl > 0 {
				r.TTLAfterFinished = &tt.ttl
			}
			b.End(b.Schedule(r))
			if tt.ttl == 0 {
				made.Await(t, "operation", 1)
			} else { // readers may see the end before the run has the answer to its write
				b.Eventually("the run waits for the time to live", func() bool {
					runs, working := e.Runs()
					return runs == 1 && working == 0
				})
			}
			stop()
			whole := made.Await(t, "operation", 1)[0]
			for key, want := range tt.want {
				if got := spans.Value(whole, key); got != want {
					t.Errorf("%s: %s is %q, want %q", tt.reason, key, got, want)
				}
			}
			if s := whole.Status(); s.Code != tt.status || s.Description != tt.want["operation.reason"] {
				t.Errorf("%s: the status is %v %q, want %v", tt.reason, s.Code, s.Description, tt.status)
			}
		})
	}
}

// TestTheTraceOverARestart: a new process starts a trace of its own that links to the previous one.
func TestTheTraceOverARestart(t *testing.T) {
	b := setup(t)
	heard := b.heard("60", func(n int) int { return map[bool]int{true: 503, false: 200}[n == 1] })
	b.Webhook("cleanup", nil)
	made := spans.New()
	stop := b.Start(b.traced(made))
	op := b.in(made, "caller", operations.Request{Webhooks: []string{"cleanup"}})
	b.Eventually("the next try is recorded", func() bool {
		w := b.Get().Status.Webhooks
		return len(w) == 1 && w[0].NextAttemptAt != nil
	})
	stop()
	before, kept := made.Named("operation"), b.Get().Status.TraceParent
	if len(before) != 1 {
		t.Fatalf("%v", made.Names())
	}
	traced := b.traced(made)
	stop = b.Start(func(o *executor.Options) { // when the next try is due
		traced(o)
		o.Now = func() time.Time { return time.Now().Add(time.Minute) }
	})
	b.End(op)
	stop()
	all := made.Named("operation")
	if len(all) != 2 || all[1].Parent().IsValid() || len(all[1].Links()) != 1 {
		t.Fatalf("after the restart: %v", made.Names())
	}
	link := all[1].Links()[0].SpanContext
	if link.TraceID() != before[0].SpanContext().TraceID() || !strings.Contains(kept, link.SpanID().String()) ||
		link.TraceID() != made.Named("caller")[0].SpanContext().TraceID() {
		t.Errorf("it links to %v, kept is %s", link, kept)
	}
	calls := made.Named("call cleanup")
	if len(calls) != 2 || !under(made, calls[1], all[1]) || !carries(heard()[1], calls[1]) {
		t.Errorf("the second call is not below the second trace: %v", made.Names())
	}
}

// TestAnOperationThatIsPickedUpLateLinks to the span of its caller, which ended more than a minute ago.
func TestAnOperationThatIsPickedUpLateLinks(t *testing.T) {
	b := setup(t)
	b.Webhook("cleanup", nil)
	made := spans.New()
	op := b.in(made, "caller", operations.Request{Webhooks: []string{"cleanup"}})
	traced := b.traced(made)
	stop := b.Start(func(o *executor.Options) {
		traced(o)
		o.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	})
	b.End(op)
	stop()
	if whole := made.Named("operation"); len(whole) != 1 || !spans.Links(whole[0], made.Named("caller")[0]) {
		t.Errorf("%v", made.Names())
	}
}

// TestTheNextRequestHasATraceOfItsOwn: that holds even if one run of the executor works on both requests.
func TestTheNextRequestHasATraceOfItsOwn(t *testing.T) {
	b := setup(t)
	heard := b.heard("", func(int) int { return 200 })
	b.Webhook("cleanup", nil)
	made := spans.New()
	stop := b.Start(b.traced(made))
	ttl := time.Hour // so that the run waits for the next request
	names := []string{"first", "second"}
	for _, name := range names {
		b.End(b.in(made, name, operations.Request{Webhooks: []string{"cleanup"}, TTLAfterFinished: &ttl}))
	}
	stop()
	whole := made.Named("operation")
	for i, name := range names {
		below := slices.DeleteFunc(slices.Clone(whole), func(s spans.Span) bool {
			return !spans.IsChild(s, made.Named(name)[0])
		})
		calls := made.Named("call cleanup")
		if len(below) != 1 || len(calls) != 2 || !under(made, calls[i], below[0]) || !carries(heard()[i], calls[i]) {
			t.Errorf("%s: %d spans below it, of %v", name, len(below), made.Names())
		}
	}
	if spans.Value(whole[0], "operation.id") == spans.Value(whole[1], "operation.id") {
		t.Error("both belong to the same operation")
	}
}

// TestWithoutAProvider: without a provider the receiver gets the trace of the scheduling caller, unless that is old or
// invalid.
func TestWithoutAProvider(t *testing.T) {
	for _, tt := range []struct {
		reason  string
		late    time.Duration
		change  func(op map[string]any)
		carries bool
	}{
		{reason: "a moment ago", carries: true},
		{reason: "long ago", late: 2 * time.Minute},
		{reason: "nonsense", change: func(a map[string]any) { a[v1alpha1.AnnotationTraceParent] = "00-<script>" }},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			b := setup(t)
			heard := b.heard("", func(int) int { return 200 })
			b.Webhook("cleanup", nil)
			state, err := trace.ParseTraceState("vendor=1")
			if err != nil {
				t.Fatal(err)
			}
			sc := trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
			})
			caller := *b.Bench
			caller.Ctx = trace.ContextWithSpanContext(b.Ctx, sc)
			op := caller.Schedule(operations.Request{Webhooks: []string{"cleanup"}})
			if tt.change != nil {
				annotations := map[string]any{}
				tt.change(annotations)
				if err := b.Merge(map[string]any{"annotations": annotations}); err != nil {
					t.Fatal(err)
				}
			}
			b.Start(func(o *executor.Options) { o.Now = func() time.Time { return time.Now().Add(tt.late) } })
			got := b.End(op)
			h := heard()[0]
			const parent = "00-01000000000000000000000000000000-0200000000000000-01"
			got1, got2 := h.Get("Traceparent"), h.Get("Tracestate")
			if (got1 == parent && got2 == "vendor=1") != tt.carries || got1 == "" {
				t.Errorf("the receiver gets %q %q", got1, got2)
			}
			if got.Status.TraceParent != "" {
				t.Errorf("the status has a span that does not exist: %s", got.Status.TraceParent)
			}
		})
	}
}

// TestCallerOfTheCurrentRequest: an operation keeps only the trace of its current request. A request that is scheduled
// in no span has none.
func TestCallerOfTheCurrentRequest(t *testing.T) {
	b := setup(t)
	made := spans.New()
	b.Start(nil)
	for i, traced := range []bool{true, true, false} {
		var op *v1alpha1.Operation
		r := operations.Request{ID: strconv.Itoa(i)}
		if traced {
			op = b.in(made, strconv.Itoa(i), r)
		} else {
			op = b.Schedule(r)
		}
		got := b.End(op).Annotations[v1alpha1.AnnotationTraceParent]
		id := ""
		if traced {
			id = made.Named(strconv.Itoa(i))[0].SpanContext().SpanID().String()
		}
		if (got != "") != traced || !strings.Contains(got, id) {
			t.Errorf("request %d: %q", i, got)
		}
	}
}

// TestACallbackLinksToItsOperation: a callback has a trace of its own, which the receiver starts.
func TestACallbackLinksToItsOperation(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
		asked <- operationbed.CallbackIn(r)
		w.WriteHeader(http.StatusAccepted)
	}
	b.Webhook("slow", operationbed.CallbackHook)
	made := spans.New()
	traced := b.traced(made)
	var e *executor.Executor
	stop := b.StartWith(func(o *executor.Options) {
		traced(o)
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
	}, func(got *executor.Executor) { e = got })
	op := b.in(made, "caller", operations.Request{Webhooks: []string{"slow"}})
	tok := operationbed.Token(b.Received(asked))
	b.Eventually("accepted by the receiver", func() bool {
		w := b.Get().Status.Webhooks
		return len(w) == 1 && w[0].LastStatusCode == http.StatusAccepted
	})
	ctx, span := made.Start(b.Ctx, "callback")
	if err := e.Taker().Take(ctx, tok, true, ""); err != nil {
		t.Fatal(err)
	}
	span.End()
	b.End(op)
	stop()
	if s := made.Named("callback")[0]; len(s.Links()) != 1 ||
		s.Links()[0].SpanContext.TraceID() != made.Named("caller")[0].SpanContext().TraceID() {
		t.Errorf("it links to %v", s.Links())
	}
}

// TestUnsampledOperationKeepsNothing: an executor whose spans are not sampled stores no trace.
func TestUnsampledOperationKeepsNothing(t *testing.T) {
	b := setup(t)
	b.Webhook("cleanup", nil)
	made := spans.New(spans.Never())
	stop := b.Start(b.traced(made))
	got := b.End(b.Schedule(operations.Request{Webhooks: []string{"cleanup"}}))
	stop()
	if got.Status.TraceParent != "" || len(made.Ended()) != 0 {
		t.Errorf("stored is %q, the spans are %v", got.Status.TraceParent, made.Names())
	}
}

// TestAPollLinksToItsCall: a poll links to the call that it asks about, or to the previous poll.
func TestAPollLinksToItsCall(t *testing.T) {
	b := setup(t)
	b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, path string, n int) {
		switch {
		case path == "/work":
			w.Header().Set("Location", "/jobs/1")
			w.WriteHeader(http.StatusAccepted)
		case n < 3:
			_, _ = w.Write([]byte(`{"status":"IN_PROGRESS"}`))
		default:
			_, _ = w.Write([]byte(`{"status":"SUCCEEDED"}`))
		}
	}
	b.Webhook("work", polled(webhook.MinInterval))
	made := spans.New()
	stop := b.Start(b.traced(made))
	b.End(b.in(made, "caller", operations.Request{Webhooks: []string{"work"}}))
	stop()
	calls, polls := made.Named("call work"), made.Named("poll work")
	if len(calls) != 1 || len(polls) != 2 {
		t.Fatalf("%v", made.Names())
	}
	for i, before := range []spans.Span{calls[0], polls[0]} {
		if l := polls[i].Links(); len(l) != 1 || !spans.Same(l[0].SpanContext, before) {
			t.Errorf("poll %d links to %v", i, l)
		}
	}
}

// TestNoProviderNoCost: without a provider, tracing an operation allocates nothing.
func TestNoProviderNoCost(t *testing.T) {
	op := &v1alpha1.Operation{}
	op.Name, op.Namespace = "app-1", "ns"
	op.Status.Phase = v1alpha1.PhaseFailed
	if n := new(executor.Executor).SpanAllocs(t.Context(), op); n != 0 {
		t.Errorf("%v allocations for no span", n)
	}
}
