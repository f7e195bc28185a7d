package webhook_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

func TestRefusedTargets(t *testing.T) {
	t.Parallel()
	server := record(t, nil)
	strict := newClient(t, webhook.Options{AllowTargets: []string{"10.255.255.255"}})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		hook := compile(t, webhook.Definition{Request: webhook.Request{URL: "http://" + host + ":" + port}})
		res := permit(t, strict, hook).Call(t.Context(), aCall())
		var refused *guard.RefusedError
		if res.Verdict != webhook.Refused || !errors.Is(res.Err, guard.ErrRefused) || !errors.As(res.Err, &refused) {
			t.Errorf("%s: %+v", host, res)
		}
		if got := strict.Breaker("ns", t.Name()); got.Failures != 0 {
			t.Errorf("%s: the breaker counts a refusal", host)
		}
	}
	byName := newClient(t, webhook.Options{AllowTargets: []string{"localhost"}})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: "http://localhost:" + port}})
	if res := permit(t, byName, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
		t.Errorf("an allowed host: %+v", res)
	}
}

func TestProxy(t *testing.T) {
	var seen []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.String())
	}))
	defer proxy.Close()
	server := record(t, nil)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	t.Setenv("ALL_PROXY", "http://127.0.0.1:1")
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}})
	if res := permit(t, newClient(t, webhook.Options{}), hook).Call(t.Context(),
		aCall()); res.Verdict != webhook.Succeeded {
		t.Errorf("a proxy of the environment is used: %+v", res)
	}
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := webhook.New(webhook.Options{Proxy: u})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for target, want := range map[string]webhook.Verdict{
		"http://outside.example/x":     webhook.Succeeded,
		"http://127.0.0.1/x":           webhook.Refused,
		"http://169.254.169.254/x":     webhook.Refused,
		"http://2852039166/x":          webhook.Refused,
		"http://anything.localhost/":   webhook.Refused,
		"http://[::ffff:a9fe:a9fe]/x/": webhook.Refused,
	} {
		hook := compile(t, webhook.Definition{Request: webhook.Request{URL: target}})
		if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != want {
			t.Errorf("%s through the proxy: %+v", target, res)
		}
	}
	if len(seen) != 1 || seen[0] != "http://outside.example/x" {
		t.Errorf("the proxy saw %q", seen)
	}
	for _, bad := range []string{"ftp://x", "http://", "x"} {
		u, _ := url.Parse(bad)
		if _, err := webhook.New(webhook.Options{Proxy: u}); err == nil {
			t.Errorf("proxy %q is accepted", bad)
		}
	}
	if _, err := webhook.New(webhook.Options{AllowTargets: []string{"a b"}}); err == nil {
		t.Error("an invalid target is accepted")
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	target := raw(t, func(c net.Conn) {
		arrived <- struct{}{}
		untilClosed(c)
	})
	client := newClient(t, webhook.Options{})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: target}, Breaker: webhook.Breaker{Failures: 1}})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the operation was cancelled")
	go func() {
		<-arrived
		cancel(stop)
	}()
	res := permit(t, client, hook).Call(ctx, aCall())
	if res.Verdict != webhook.Canceled || !errors.Is(res.Err, webhook.ErrCanceled) || !errors.Is(res.Err, stop) {
		t.Errorf("%+v", res)
	}
	if got := client.Breaker("ns", t.Name()); got.State != webhook.Closed {
		t.Errorf("the breaker counts a cancellation: %+v", got)
	}
	p := permit(t, client, hook)
	p.Release()
	if res := p.Call(t.Context(), aCall()); res.Verdict != webhook.Canceled {
		t.Errorf("a used permit: %+v", res)
	}
}

// TestRecordedBreaker: a breaker starts in the state that another process has recorded, for at most OpenFor, and again
// after Vacate.
func TestRecordedBreaker(t *testing.T) {
	t.Parallel()
	recorded := webhook.BreakerStatus{State: webhook.Open, Until: time.Now().Add(time.Hour)}
	client := newClient(t, webhook.Options{Recorded: func(string, string) webhook.BreakerStatus { return recorded }})
	hook := compile(t, webhook.Definition{
		Request: webhook.Request{URL: "http://127.0.0.1:1"}, Breaker: webhook.Breaker{OpenFor: time.Minute},
	})
	if got := client.Breaker("ns", t.Name()); got != recorded {
		t.Errorf("Before the first call the breaker is %+v.", got)
	}
	if p, wait := client.Acquire(hook, "one", nil); p != nil || wait.Reason != webhook.WaitBreaker ||
		wait.For > 67*time.Second || wait.For < 30*time.Second {
		t.Errorf("An open breaker: permit %v, %+v.", p, wait)
	}
	recorded = webhook.BreakerStatus{State: webhook.HalfOpen}
	client.Vacate(func(namespace string) bool { return namespace == "ns" })
	probe, _ := client.Acquire(hook, "one", nil)
	if p, wait := client.Acquire(hook, "two", nil); probe == nil || p != nil || wait.Reason != webhook.WaitBreaker {
		t.Errorf("A half-open breaker: permits %v and %v, %+v.", probe, p, wait)
	}
	probe.Release()
	recorded = webhook.BreakerStatus{}
	client.Vacate(func(string) bool { return true })
	if p, _ := client.Acquire(hook, "two", nil); p == nil || client.Breaker("ns", t.Name()).State != webhook.Closed {
		t.Error("Without a record the breaker is not closed.")
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	arrived, leave := make(chan struct{}), make(chan struct{})
	server := newServer(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-leave
	})
	client := newClient(t, webhook.Options{})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}})
	results, closed := make(chan webhook.Result, 1), make(chan struct{})
	p := permit(t, client, hook)
	go func() { results <- p.Call(context.Background(), aCall()) }()
	<-arrived
	go func() {
		client.Close()
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("Close does not wait for the call under way")
	case <-time.After(20 * time.Millisecond):
	}
	close(leave)
	<-closed
	if res := <-results; res.Verdict != webhook.Succeeded {
		t.Errorf("%+v", res)
	}
	if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Canceled ||
		!errors.Is(res.Err, webhook.ErrClosed) {
		t.Errorf("after Close: %+v", res)
	}
	client.Close()
}

type panicking struct{ *secrets }

func (panicking) Secret(context.Context, string, string) (map[string][]byte, error) { panic("boom") }

func TestPanicOfResolver(t *testing.T) {
	t.Parallel()
	client := newClient(t, webhook.Options{Resolver: panicking{newSecrets()}})
	hook := compile(t, webhook.Definition{
		Request: webhook.Request{URL: "http://127.0.0.1:1"},
		Auth:    &webhook.Auth{Basic: "x"}, Concurrency: 1,
	})
	for range 2 { // the first permit was returned
		if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Retry ||
			!strings.Contains(res.Message, "panic: boom") {
			t.Errorf("%+v", res)
		}
	}
}

func TestPanicOfCallbacks(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	client := newClient(t, webhook.Options{
		Logger:    slog.New(slog.NewTextHandler(&log, nil)),
		OnBreaker: func(string, string, webhook.BreakerStatus) { panic("breaker boom") },
	})
	hook := compile(t, webhook.Definition{
		Request: webhook.Request{URL: "http://127.0.0.1:1"}, Concurrency: 1,
		Breaker: webhook.Breaker{Failures: 1},
	})
	p := permit(t, client, hook)
	if other, _ := client.Acquire(hook, "other", func() { panic("wake boom") }); other != nil {
		t.Fatal("two of one")
	}
	if res := p.Call(t.Context(), aCall()); res.Verdict != webhook.Retry {
		t.Errorf("%+v", res)
	}
	for _, want := range []string{"breaker boom", "wake boom"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not reported: %s", want, log.String())
		}
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	server := record(t, nil)
	client := newClient(t, webhook.Options{UserAgent: "Fairlead/1.2"})
	hook := compile(t, webhook.Definition{Request: webhook.Request{
		URL: server.URL, Headers: map[string]string{"TraceParent": "forged", "tracestate": "forged"},
	}})
	call := func(ctx context.Context) http.Header {
		permit(t, client, hook).Call(ctx, aCall())
		return <-server.headers
	}
	first, second := call(t.Context()), call(t.Context())
	a, b := first.Get("Traceparent"), second.Get("Traceparent")
	form := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-00$`)
	if !form.MatchString(a) || !form.MatchString(b) || a[:36] != b[:36] || a == b {
		t.Errorf("two tries: %s and %s, want the same trace and two spans", a, b)
	}
	if first.Get("Tracestate") != "" || first.Get("User-Agent") != "Fairlead/1.2" ||
		first.Get("Accept-Encoding") != "gzip" {
		t.Errorf("headers: %v", first)
	}
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	h := call(ctx)
	if got := h.Get("Traceparent"); got != "00-01000000000000000000000000000000-0200000000000000-01" ||
		h.Get("Tracestate") != "vendor=1" {
		t.Errorf("the trace of the context: %s %s", got, h.Get("Tracestate"))
	}
}

// TestOneRequestPerTry: a dead connection in the pool causes no second request. The net/http package repeats a request
// with an idempotency key.
func TestOneRequestPerTry(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 10)
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		requests <- r.Header.Get("Idempotency-Key")
		if len(requests) == 2 {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
		}
	})
	client := newClient(t, webhook.Options{})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}})
	for i, want := range []webhook.Verdict{webhook.Succeeded, webhook.Retry} {
		if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != want {
			t.Errorf("try %d: %+v", i+1, res)
		}
	}
	if len(requests) != 2 {
		t.Errorf("two tries made %d requests", len(requests))
	}
}

func TestCallID(t *testing.T) {
	t.Parallel()
	for purpose, want := range map[webhook.Purpose]string{
		webhook.Main: "ns.op.hook", webhook.Compensate: "ns.op.hook.compensate", webhook.Notify: "ns.op.hook.notify",
	} {
		if got := webhook.CallID("ns", "op", "hook", purpose); got != want {
			t.Errorf("%q: %s, want %s", purpose, got, want)
		}
	}
}

func TestExpensiveExpressions(t *testing.T) {
	t.Parallel()
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`[` + strings.Repeat(`1,`, 3000) + `1]`))
	})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}, Response: webhook.Response{
		Success: `response.body.all(a, response.body.all(b, response.body.all(c, a + b + c > 0)))`,
	}})
	res := permit(t, newClient(t, webhook.Options{}), hook).Call(t.Context(), aCall())
	if res.Verdict != webhook.Failed || !strings.Contains(res.Message, "spec.response.success: cannot evaluate") {
		t.Errorf("%+v", res)
	}
}
