package executor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
)

var shop = operation.Resource{Type: "Application", ID: "a1"}

// schedule schedules an operation of the usual resource.
func (b *bench) schedule(r operation.Request) *v1alpha1.Operation {
	b.t.Helper()
	if r.Resource.ID == "" {
		r.Resource = shop
	}
	if r.Type == "" {
		r.Type = operation.Delete
	}
	op, err := b.scheduler.Schedule(b.ctx, r)
	if err != nil {
		b.t.Fatal(err)
	}
	return op
}

// end waits for the end of an operation and returns the object.
func (b *bench) end(op *v1alpha1.Operation) *v1alpha1.Operation {
	b.t.Helper()
	r := operation.Resource{Type: op.Spec.ResourceType, ID: op.Spec.ResourceID}
	if _, err := b.scheduler.Wait(b.ctx, r, op.EffectiveID(), nil); err != nil {
		b.t.Fatal(err)
	}
	got, err := b.scheduler.Get(b.ctx, r)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func (b *bench) reason(op *v1alpha1.Operation) string { return operation.ViewOf(op).Reason }

func (b *bench) get() *v1alpha1.Operation {
	b.t.Helper()
	op, err := b.scheduler.Get(b.ctx, shop)
	if err != nil {
		b.t.Fatal(err)
	}
	return op
}

// received waits until the receiver was asked.
func (b *bench) received(c <-chan string) string {
	b.t.Helper()
	select {
	case s := <-c:
		return s
	case <-b.ctx.Done():
		b.t.Fatal("the receiver was not called")
		return ""
	}
}

// callbacks makes an executor that listens for callbacks, and its taker.
func (b *bench) callbacks() *executor.Taker {
	var e *executor.Executor
	b.startWith(func(o *executor.Options) {
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
	}, func(got *executor.Executor) { e = got })
	return e.Taker()
}

func token(callbackURL string) string { return callbackURL[strings.LastIndex(callbackURL, "/")+1:] }

func callbackHook(s *v1alpha1.WebhookSpec) {
	s.Mode = v1alpha1.ModeAsyncCallback
	s.Request.Body = new(`{"callback": "{{.CallbackURL}}"}`)
}

func callbackIn(r *http.Request) string {
	var body struct{ Callback string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	return body.Callback
}

func TestCallback(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.receiver.answer = func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
		asked <- callbackIn(r)
		w.WriteHeader(http.StatusAccepted)
	}
	b.webhook("slow", callbackHook)
	taker := b.callbacks()
	op := b.schedule(operation.Request{Webhooks: []string{"slow"}})
	tok := token(b.received(asked))
	b.eventually("taken by the receiver", func() bool {
		w := b.get().Status.Webhooks
		return len(w) == 1 && w[0].LastStatusCode == http.StatusAccepted
	})
	if raw, _ := json.Marshal(b.get()); strings.Contains(string(raw), tok) {
		t.Error("the token is in the object")
	}
	if err := taker.Take(b.ctx, tok+"x", true, ""); !errors.Is(err, operation.ErrUnknownCallback) {
		t.Errorf("a forged token: %v", err)
	}
	if err := taker.Take(b.ctx, tok, false, "no\nroom"); err != nil {
		t.Fatal(err)
	}
	ended := b.end(op)
	if v := operation.ViewOf(ended); v.Status != operation.Failed || v.Reason != v1alpha1.ReasonWebhookFailed || v.Error != "no room" {
		t.Errorf("outcome: %+v", v)
	}
	if err := taker.Take(b.ctx, tok, true, ""); !errors.Is(err, operation.ErrCallbackUsed) {
		t.Errorf("a token used twice: %v", err)
	}
	// A callback of the operation before means nothing for the next one.
	next := b.schedule(operation.Request{Webhooks: []string{"slow"}})
	fresh := token(b.received(asked))
	if err := taker.Take(b.ctx, tok, true, ""); !errors.Is(err, operation.ErrUnknownCallback) && !errors.Is(err, operation.ErrCallbackUsed) {
		t.Errorf("a token of the operation before: %v", err)
	}
	if err := taker.Take(b.ctx, fresh, true, ""); err != nil {
		t.Fatal(err)
	}
	if v := operation.ViewOf(b.end(next)); v.Status != operation.Succeeded {
		t.Errorf("next outcome: %+v", v)
	}
}

func TestCallbackBeforeTheAnswer(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 1), make(chan struct{})
	b.receiver.answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
		if path == "/next" {
			return
		}
		asked <- callbackIn(r)
		pause(r, answer)
		w.WriteHeader(http.StatusAccepted)
	}
	b.webhook("slow", callbackHook)
	b.webhook("next", nil)
	taker := b.callbacks()
	op := b.schedule(operation.Request{Webhooks: []string{"slow", "next"}})
	if err := taker.Take(b.ctx, token(b.received(asked)), true, ""); err != nil {
		t.Fatal(err)
	}
	close(answer)
	if v := operation.ViewOf(b.end(op)); v.Status != operation.Succeeded || v.Progress.Completed != 2 {
		t.Errorf("outcome: %+v", v)
	}
}

func TestCancel(t *testing.T) {
	b := setup(t)
	asked, aborted := make(chan string, 1), make(chan string, 1)
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		if path == "/hang" {
			asked <- path
			<-r.Context().Done()
			aborted <- path
		}
	}
	for _, name := range []string{"first", "hang", "never", "undo"} {
		b.webhook(name, nil)
	}
	b.start(nil)
	op := b.schedule(operation.Request{Webhooks: []string{"first", "hang", "never"}, Compensate: []string{"undo"}})
	b.received(asked)
	if _, err := b.scheduler.Cancel(b.ctx, shop, op.EffectiveID()); err != nil {
		t.Fatal(err)
	}
	b.received(aborted)
	ended := b.end(op)
	if got := b.reason(ended); got != v1alpha1.ReasonCanceled {
		t.Errorf("reason %s", got)
	}
	want := map[string]int{"first": 1, "hang": 1, "undo.compensate": 1}
	if diff := cmp.Diff(want, b.receiver.counts(op.EffectiveID())); diff != "" {
		t.Errorf("no new call starts and compensation runs: -want +got:\n%s", diff)
	}
	for _, w := range ended.Status.Webhooks {
		if !w.State.Terminal() {
			t.Errorf("webhook %s is %s after the end", w.WebhookID, w.State)
		}
	}
}

func TestDeletedWhileItWaits(t *testing.T) {
	b := setup(t)
	b.receiver.answer = func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
		if path == "/busy" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	b.webhook("busy", nil)
	b.webhook("tell", nil)
	b.start(nil)
	op := b.schedule(operation.Request{Webhooks: []string{"busy"}, Notify: "tell"})
	b.eventually("held by the finalizer", func() bool { return len(b.get().Finalizers) == 1 })
	b.delete(op.Name)
	b.eventually("gone", func() bool { _, err := b.scheduler.Get(b.ctx, shop); return errors.Is(err, operation.ErrNotFound) })
	if diff := cmp.Diff(map[string]int{"busy": 1, "tell.notify": 1}, b.receiver.counts(op.EffectiveID())); diff != "" {
		t.Errorf("a deleted operation is cancelled, and that is told: -want +got:\n%s", diff)
	}
}

func TestTTLAndHistory(t *testing.T) {
	b := setup(t)
	b.start(nil)
	for range v1alpha1.MaxHistory + 2 {
		b.end(b.schedule(operation.Request{Type: operation.Update}))
	}
	op := b.get()
	if len(op.Status.History) != v1alpha1.MaxHistory {
		t.Errorf("history has %d entries", len(op.Status.History))
	}
	if len(op.Finalizers) != 0 {
		t.Errorf("finalizers %v on an operation that never waited", op.Finalizers)
	}
	b.schedule(operation.Request{TTLAfterFinished: new(50 * time.Millisecond)})
	b.eventually("deleted after its time to live", func() bool {
		_, err := b.scheduler.Get(b.ctx, shop)
		return errors.Is(err, operation.ErrNotFound)
	})
}

func TestTimedOutWhileNobodyRan(t *testing.T) {
	b := setup(t)
	b.webhook("cleanup", nil)
	op := b.schedule(operation.Request{Webhooks: []string{"cleanup"}, Timeout: time.Nanosecond})
	b.start(nil)
	if got := b.reason(b.end(op)); got != v1alpha1.ReasonTimedOut {
		t.Errorf("reason %s", got)
	}
	if n := len(b.receiver.counts(op.EffectiveID())); n != 0 {
		t.Errorf("%d calls after the deadline", n)
	}
}

func TestDeadlineCutsTheCall(t *testing.T) {
	b := setup(t)
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) { <-r.Context().Done() }
	b.webhook("hang", nil)
	b.start(nil)
	began := time.Now()
	op := b.end(b.schedule(operation.Request{Webhooks: []string{"hang"}, Timeout: time.Second}))
	if got := b.reason(op); got != v1alpha1.ReasonTimedOut {
		t.Errorf("reason %s", got)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v, though the timeout of a try is 30 s", took)
	}
}

func TestWebhookTimeout(t *testing.T) {
	b := setup(t)
	b.receiver.answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	b.webhook("busy", func(s *v1alpha1.WebhookSpec) {
		s.Timeout = metav1.Duration{Duration: 300 * time.Millisecond}
		s.Retry.MaxAttempts = 1000000
	})
	b.start(nil)
	if got := b.reason(b.end(b.schedule(operation.Request{Webhooks: []string{"busy"}}))); got != v1alpha1.ReasonTimedOut {
		t.Errorf("reason %s", got)
	}
}

func TestWebhookThatAppears(t *testing.T) {
	b := setup(t)
	b.start(nil)
	op := b.schedule(operation.Request{Webhooks: []string{"late"}})
	b.eventually("picked up", func() bool { return b.get().Status.Phase == v1alpha1.PhaseInProgress })
	b.webhook("late", nil)
	if v := operation.ViewOf(b.end(op)); v.Status != operation.Succeeded {
		t.Errorf("outcome %+v", v)
	}
}

func TestRequestThatNoSchedulerMade(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(op *v1alpha1.Operation)
		want   string
	}{
		"Name": {
			"Another name would allow two operations of one resource.",
			func(op *v1alpha1.Operation) { op.Name = "any" }, "metadata.name",
		},
		"Size": {
			"The schema cannot measure the request object.",
			func(op *v1alpha1.Operation) {
				op.Spec.RequestObject = &v1alpha1.RequestObject{Resource: rawJSON(`"` + strings.Repeat("x", v1alpha1.MaxRequestObjectBytes) + `"`)}
			}, "spec.requestObject",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.start(nil)
			op := &v1alpha1.Operation{Spec: v1alpha1.OperationSpec{
				OperationType: operation.Delete, ResourceReference: v1alpha1.ResourceReference{ResourceType: "app", ResourceID: "1"},
			}}
			op.Name, op.Namespace = "app-1", b.namespace
			tc.change(op)
			op.Default()
			b.create(v1alpha1.OperationsResource, v1alpha1.KindOperation, op)
			b.eventually("ended", func() bool {
				answer, err := call.Do(b.ctx, b.calls, call.Request{
					Verb: call.VerbGet, Resource: v1alpha1.OperationsResource,
					Kind: v1alpha1.KindOperation, Namespace: b.namespace, Name: op.Name,
				}, call.Policy{})
				if err != nil {
					t.Fatal(err)
				}
				got := &v1alpha1.Operation{}
				if err := answer.Into(got); err != nil {
					t.Fatal(err)
				}
				v := operation.ViewOf(got)
				if v.Terminal() && (v.Reason != v1alpha1.ReasonInvalid || !strings.Contains(v.Error, tc.want)) {
					t.Fatalf("%s: %s %s", tc.reason, v.Reason, v.Error)
				}
				return v.Terminal()
			})
		})
	}
}

// TestWrites is bar P2.
func TestWrites(t *testing.T) {
	b := setup(t)
	var requests atomic.Int64
	var all atomic.Value
	all.Store("")
	counted := rest.CopyConfig(b.config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			all.Store(all.Load().(string) + "\n" + r.Method + " " + r.URL.Path)
			return next.RoundTrip(r)
		})
	})
	calls, err := call.New(call.Options{Config: counted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	scheduler, err := operation.NewScheduler(operation.Options{Config: counted, Calls: calls, Namespace: b.namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scheduler.Close)
	b.webhook("cleanup", nil)
	b.start(func(o *executor.Options) { o.Calls = calls })
	b.eventually("status of the webhook written", func() bool { return b.hook("cleanup").Status.ObservedGeneration > 0 })
	const n = 20
	requests.Store(0)
	all.Store("")
	for i := range n {
		request := operation.Request{
			Type: operation.Delete, Webhooks: []string{"cleanup"},
			Resource: operation.Resource{Type: "app", ID: fmt.Sprint(i)},
		}
		if i%2 == 1 { // a lock that nobody holds costs nothing
			request.Lock = []operation.Resource{{Type: "db", ID: "7"}}
		}
		op, err := scheduler.Schedule(b.ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		b.end(op) // reads through other connections
		if got := b.receiver.counts(op.EffectiveID())["cleanup"]; got != 1 {
			t.Errorf("%d calls", got)
		}
	}
	if got := requests.Load(); got > 3*n {
		t.Errorf("%d requests for %d operations, more than 3 each:%s", got, n, all.Load())
	}
}

// TestParallelIsIndependent has one call hang while another one is tried again and again.
func TestParallelIsIndependent(t *testing.T) {
	b := setup(t)
	hang, thrice := make(chan struct{}), make(chan string, 1)
	b.receiver.answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		switch {
		case path == "/slow":
			pause(r, hang)
		case n < 4:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			thrice <- path
		}
	}
	b.webhook("slow", nil)
	b.webhook("flaky", nil)
	b.start(nil)
	op := b.schedule(operation.Request{Webhooks: []string{"slow", "flaky"}, Execution: operation.Parallel})
	b.received(thrice)
	close(hang)
	if v := operation.ViewOf(b.end(op)); v.Status != operation.Succeeded {
		t.Errorf("outcome %+v", v)
	}
}

func TestHungTenantDelaysNobody(t *testing.T) {
	b := setup(t)
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		if path == "/hang" {
			<-r.Context().Done()
		}
	}
	b.webhook("hang", nil)
	b.webhook("quick", nil)
	b.start(func(o *executor.Options) { o.MaxCalls = 4 })
	for i := range 10 {
		b.schedule(operation.Request{Webhooks: []string{"hang"}, TenantID: "flood", Resource: operation.Resource{Type: "app", ID: fmt.Sprint(i)}})
	}
	for i := range 3 {
		op := b.schedule(operation.Request{Webhooks: []string{"quick"}, TenantID: "other", Resource: operation.Resource{Type: "app", ID: fmt.Sprint("q", i)}})
		if v := operation.ViewOf(b.end(op)); v.Status != operation.Succeeded {
			t.Errorf("outcome %+v", v)
		}
	}
}

func TestWebhookStatus(t *testing.T) {
	b := setup(t)
	b.receiver.answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
		w.WriteHeader(http.StatusInternalServerError)
	}
	b.webhook("broken", func(s *v1alpha1.WebhookSpec) { s.Breaker.Failures = 2 })
	b.webhook("bad", func(s *v1alpha1.WebhookSpec) { s.Response.Success = "response.nothing(" })
	b.webhook("odd", func(s *v1alpha1.WebhookSpec) { s.Request.Headers = map[string]string{"Idempotency-Key": "mine"} })
	b.start(nil)
	b.schedule(operation.Request{Webhooks: []string{"broken"}})
	b.eventually("breaker open", func() bool {
		s := b.hook("broken").Status
		return s.Breaker != nil && s.Breaker.State == v1alpha1.BreakerOpen && s.Breaker.Until != nil
	})
	for name, want := range map[string][2]string{"bad": {"False", "spec.response.success"}, "odd": {"True", "Idempotency-Key"}, "broken": {"True", ""}} {
		b.eventually("condition Valid of "+name, func() bool {
			for _, c := range b.hook(name).Status.Conditions {
				if c.Type == v1alpha1.ConditionValid {
					return string(c.Status) == want[0] && strings.Contains(c.Message, want[1])
				}
			}
			return false
		})
	}
}

func TestServiceAccountToken(t *testing.T) {
	b := setup(t)
	clients := kubernetes.NewForConfigOrDie(b.config)
	if _, err := clients.CoreV1().ServiceAccounts(b.namespace).Create(b.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "caller"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sent := make(chan string, 1)
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) { sent <- r.Header.Get("Authorization") }
	b.webhook("cleanup", func(s *v1alpha1.WebhookSpec) {
		s.Auth = &v1alpha1.WebhookAuth{ServiceAccountToken: &v1alpha1.ServiceAccountTokenAuth{Audience: "crm", ServiceAccountName: "caller"}}
	})
	b.start(nil)
	if v := operation.ViewOf(b.end(b.schedule(operation.Request{Webhooks: []string{"cleanup"}}))); v.Status != operation.Succeeded {
		t.Fatalf("outcome %+v", v)
	}
	if got := <-sent; !strings.HasPrefix(got, "Bearer ey") {
		t.Errorf("authorization %.10q", got)
	}
}

// TestSecretsStayHidden searches for the values of secrets in everything that the controller writes.
func TestSecretsStayHidden(t *testing.T) {
	b := setup(t)
	const secret = "correct-horse-battery"
	b.create(corev1.SchemeGroupVersion.WithResource("secrets"), "Secret", &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "login", Namespace: b.namespace},
		Data:       map[string][]byte{"token": []byte(secret)},
	})
	asked := make(chan string, 1)
	b.receiver.answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
		switch path {
		case "/echo":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "bad token "+r.Header.Get("Authorization")+" at "+url.QueryEscape(secret))
		case "/back":
			asked <- callbackIn(r)
		}
	}
	auth := &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: v1alpha1.SecretReference{Name: "login"}}}
	b.webhook("echo", func(s *v1alpha1.WebhookSpec) { s.Auth, s.Response.Error = auth, "string(response.body)" })
	b.webhook("back", func(s *v1alpha1.WebhookSpec) { callbackHook(s); s.Auth = auth })
	log := &syncBuffer{}
	var e *executor.Executor
	events, err := executor.NewEvents(b.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Close)
	b.startWith(func(o *executor.Options) {
		o.Logger, o.Recorder = log.logger(), events
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
	}, func(got *executor.Executor) { e = got })
	var told []string
	for _, name := range []string{"echo", "back"} {
		op := b.schedule(operation.Request{Webhooks: []string{name}, Resource: operation.Resource{Type: "app", ID: name}})
		if name == "back" {
			tok := token(b.received(asked))
			told = append(told, tok)
			if err := e.Taker().Take(b.ctx, tok, false, "bad token "+secret); err != nil {
				t.Fatal(err)
			}
		}
		ended := b.end(op)
		if v := operation.ViewOf(ended); v.Reason != v1alpha1.ReasonWebhookFailed || !strings.Contains(v.Error, "masked") {
			t.Errorf("outcome %+v", v)
		}
		raw, _ := json.Marshal(ended)
		b.hidden("status", string(raw), secret, told...)
	}
	clients := kubernetes.NewForConfigOrDie(b.config)
	b.eventually("events written", func() bool {
		list, err := clients.CoreV1().Events(b.namespace).List(b.ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := json.Marshal(list)
		b.hidden("events", string(raw), secret, told...)
		return len(list.Items) >= 4
	})
	b.hidden("log", log.String(), secret, told...)
}

func (b *bench) hidden(where, text, secret string, others ...string) {
	b.t.Helper()
	for _, s := range append(others, secret) {
		if s != "" && strings.Contains(text, s) {
			b.t.Errorf("a secret is in the %s:\n%s", where, text)
		}
	}
}

// TestHostileReceivers are those that want to cost time or memory, or confuse.
func TestHostileReceivers(t *testing.T) {
	tests := map[string]struct {
		reason string
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"Hang": {"A try ends with its timeout.", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, v1alpha1.ReasonRetriesExhausted},
		"Reset": {"A reset is no answer.", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}, v1alpha1.ReasonRetriesExhausted},
		"Redirect": {"Redirects are not followed.", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		}, v1alpha1.ReasonWebhookFailed},
		"Garbage": {"Garbage is no answer.", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("\x00\x01garbage\r\n\r\n"))
				_ = conn.Close()
			}
		}, v1alpha1.ReasonRetriesExhausted},
		"Huge": {"Of 50 MB only the beginning is read, and little of it is kept.", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			chunk := []byte(strings.Repeat("x", 1<<20))
			for range 50 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, v1alpha1.ReasonWebhookFailed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.receiver.answer = func(w http.ResponseWriter, r *http.Request, _ string, _ int) { tc.answer(w, r) }
			b.webhook("hostile", func(s *v1alpha1.WebhookSpec) {
				s.RequestTimeout = metav1.Duration{Duration: 300 * time.Millisecond}
				s.Retry.MaxAttempts = 2
				s.Response.Error = "string(response.body)"
			})
			b.start(nil)
			op := b.end(b.schedule(operation.Request{Webhooks: []string{"hostile"}}))
			if got := b.reason(op); got != tc.want {
				t.Errorf("%s reason %s, want %s", tc.reason, got, tc.want)
			}
			if raw, _ := json.Marshal(op.Status); len(raw) > 8<<10 {
				t.Errorf("status of %d bytes", len(raw))
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 1), make(chan struct{})
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) { asked <- ""; pause(r, answer) }
	b.webhook("cleanup", nil)
	registry := prometheus.NewPedanticRegistry()
	now := atomic.Int64{}
	b.start(func(o *executor.Options) {
		o.Registerer = registry
		o.Now = func() time.Time { return time.Now().Add(time.Duration(now.Load())) }
	})
	op := b.schedule(operation.Request{Webhooks: []string{"cleanup"}, Category: "unregister"})
	b.received(asked)
	value := func(name string) float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				m := f.GetMetric()[0]
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return -1
	}
	expect := func(when string, want map[string]float64) {
		t.Helper()
		for name, v := range want {
			if got := value(name); got != v {
				t.Errorf("%s: %s is %v, want %v", when, name, got, v)
			}
		}
	}
	expect("while it runs", map[string]float64{"fairlead_operations_in_progress": 1, "fairlead_operations_near_timeout": 0, "fairlead_operations_started_total": 1})
	now.Store(int64(v1alpha1.DefaultTimeout / 100 * 95))
	expect("near its timeout", map[string]float64{"fairlead_operations_near_timeout": 1})
	now.Store(0)
	close(answer)
	b.end(op)
	b.eventually("counted", func() bool { return value("fairlead_operations_in_progress") == 0 })
	expect("at the end", map[string]float64{
		"fairlead_operations_near_timeout": 0, "fairlead_operations_finished_total": 1,
		"fairlead_operation_duration_seconds": 1, "fairlead_webhook_tries_total": 1, "fairlead_webhook_calls_queued": 0,
	})
}

// TestHandover stops an executor in the middle of a call; the next one repeats it with the same key and attempt.
func TestHandover(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, _ string, n int) {
		asked <- r.Header.Get("Idempotency-Key")
		if n == 1 {
			<-r.Context().Done()
		}
	}
	b.webhook("cleanup", nil)
	stop := b.start(nil)
	op := b.schedule(operation.Request{Webhooks: []string{"cleanup"}})
	first := b.received(asked)
	attempt := b.get().Status.Webhooks[0].AttemptID
	stop()
	b.start(nil)
	if second := b.received(asked); second != first {
		t.Errorf("key %s, then %s", first, second)
	}
	ended := b.end(op)
	if got := ended.Status.Webhooks[0]; got.AttemptID != attempt || got.RetriesCount != 0 || got.State != v1alpha1.PhaseSuccess {
		t.Errorf("attempt %s became %+v", attempt, got)
	}
}

// pause waits like a slow receiver.
func pause(r *http.Request, until <-chan struct{}) {
	select {
	case <-until:
	case <-r.Context().Done():
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (b *bench) delete(name string) {
	b.t.Helper()
	if _, err := call.Do(b.ctx, b.calls, call.Request{
		Verb: call.VerbDelete, Resource: v1alpha1.OperationsResource,
		Kind: v1alpha1.KindOperation, Namespace: b.namespace, Name: name,
	}, call.Policy{}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) hook(name string) *v1alpha1.Webhook {
	b.t.Helper()
	answer, err := call.Do(b.ctx, b.calls, call.Request{
		Verb: call.VerbGet, Resource: v1alpha1.WebhooksResource,
		Kind: v1alpha1.KindWebhook, Namespace: b.namespace, Name: name,
	}, call.Policy{})
	w := &v1alpha1.Webhook{}
	if err == nil {
		err = answer.Into(w)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// eventually looks until something is as wanted.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("never %s", what)
		}
	}
}

func rawJSON(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }

// syncBuffer collects a log.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *syncBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
