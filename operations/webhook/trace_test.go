package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing/spans"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// attributes returns the attributes of a span, with its name, kind and status.
func attributes(s spans.Span) map[string]string {
	all := map[string]string{"name": s.Name(), "kind": s.SpanKind().String()}
	if s.Status().Code != codes.Unset {
		all["status"] = s.Status().Code.String() + s.Status().Description
	}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// TestASpanForEachAttempt: each attempt has a span below that of the caller, and the receiver continues it. It shows
// where the request went, and none of its contents.
func TestASpanForEachAttempt(t *testing.T) {
	t.Parallel()
	made := spans.New()
	server := record(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"message":"secret of the receiver"}`))
	})
	client := newClient(t, webhook.Options{TracerProvider: made, Resolver: allSecrets()})
	hook := compile(t, webhook.Definition{
		Namespace: "ns", Name: "cleanup",
		Request: webhook.Request{
			URL:  server.URL + "/apps/{{.Operation.resourceID}}?key=hidden&back={{.CallbackURL}}",
			Body: ptr(`{"secret":"of the body"}`), Headers: map[string]string{"X-Own": "hidden"},
		},
		Auth: &webhook.Auth{Bearer: "bearer"},
	})
	ctx, caller := made.Start(t.Context(), "caller")
	call := aCall()
	call.Data.CallbackURL = "https://fairlead.example/callbacks/0123456789abcdef0123456789abcdef"
	first := permit(t, client, hook).Call(ctx, call)
	call.After = first.Span
	permit(t, client, hook).Poll(ctx, call, server.URL+"/jobs/1?key=hidden")
	caller.End()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"name": "call cleanup", "kind": "client", "status": "Error", "webhook.name": "cleanup",
		"webhook.call.id": call.ID, "k8s.namespace.name": "ns", "webhook.verdict": "Retry", "http.request.method": "POST",
		"url.full": server.URL + "/apps/app-1?[masked]", "server.address": u.Hostname(), "server.port": u.Port(),
		"http.response.status_code": "503", "error.type": "503",
	}
	if diff := cmp.Diff(want, attributes(made.Named("call cleanup")[0])); diff != "" {
		t.Errorf("call, -want +got:\n%s", diff)
	}
	want["name"], want["url.full"], want["http.request.method"] = "poll cleanup", server.URL+"/jobs/1?[masked]", "GET"
	want["webhook.verdict"] = "Pending"
	poll := attributes(made.Named("poll cleanup")[0])
	delete(want, "status")
	delete(want, "error.type")
	delete(poll, "status")
	delete(poll, "error.type") // a refused poll has no outcome
	if diff := cmp.Diff(want, poll); diff != "" {
		t.Errorf("poll, -want +got:\n%s", diff)
	}
	for _, name := range []string{"call cleanup", "poll cleanup"} {
		s := made.Named(name)[0]
		if s.Parent().SpanID() != made.Named("caller")[0].SpanContext().SpanID() {
			t.Errorf("%s is not below its caller", name)
		}
		first := made.Named("call cleanup")[0]
		if l := s.Links(); s != first && (len(l) != 1 || !spans.Same(l[0].SpanContext, first)) {
			t.Errorf("%s links to %v", name, l)
		}
		h := <-server.headers
		if got, want := h.Get("Traceparent"), "00-"+s.SpanContext().TraceID().String()+"-"+
			s.SpanContext().SpanID().String()+"-01"; got != want {
			t.Errorf("%s: the receiver gets %s, want %s", name, got, want)
		}
	}
}

// TestSpanOfAFailedAttempt: the error type of a failed attempt is one word.
func TestSpanOfAFailedAttempt(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	server := record(t, nil)
	at := func(url string) webhook.Definition { return webhook.Definition{Request: webhook.Request{URL: url}} }
	for _, tt := range []struct {
		reason string
		def    webhook.Definition
		opt    webhook.Options
		ctx    context.Context
		want   string
	}{
		{reason: "no failure", def: at(server.URL)},
		{reason: "the target", def: at("http://169.254.169.254/x"), want: "target_refused"},
		{reason: "no server", def: at("http://127.0.0.1:1/"), want: "no_answer"},
		{reason: "a field", def: at("{{.Operation.nothing}}"), want: "invalid"},
		{reason: "cancelled", def: at(server.URL), ctx: canceled, want: "cancelled"},
		{
			reason: "no token", want: "no_credentials",
			def: webhook.Definition{Request: webhook.Request{URL: server.URL}, Auth: &webhook.Auth{Bearer: "none"}},
		},
		{
			reason: "a fence", def: at(server.URL), want: "fenced",
			opt: webhook.Options{Fence: func(string) error { return errors.New("another one leads") }},
		},
		{
			reason: "a resolver that panics, with a callback in the path", want: "failed",
			def: webhook.Definition{
				Request: webhook.Request{URL: server.URL + "/{{.CallbackURL}}"}, Auth: &webhook.Auth{Bearer: "x"},
			},
			opt: webhook.Options{Resolver: panicking{}},
		},
	} {
		made := spans.New()
		tt.opt.TracerProvider = made
		if tt.opt.Resolver == nil {
			tt.opt.Resolver = allSecrets()
		}
		ctx := tt.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		tt.def.Namespace, tt.def.Name = "ns", "h"
		call := aCall()
		call.Data.CallbackURL = "https://x/callbacks/0123456789abcdef0123456789abcdef"
		permit(t, newClient(t, tt.opt), compile(t, tt.def)).Call(ctx, call)
		s := made.Named("call h")
		if len(s) != 1 {
			t.Fatalf("%s: %v", tt.reason, made.Names())
		}
		got := attributes(s[0])
		if got["error.type"] != tt.want || (got["status"] == "Error") != (tt.want != "") {
			t.Errorf("%s: %v", tt.reason, got)
		}
		if strings.Contains(got["url.full"], "0123456789abcdef") {
			t.Errorf("%s: the token of the callback is in %s", tt.reason, got["url.full"])
		}
	}
}

// TestNoProviderNoCost: without a provider, spans allocate nothing.
func TestNoProviderNoCost(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	client := newClient(t, webhook.Options{})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}})
	p := permit(t, client, hook)
	defer p.Release()
	if n := webhook.SpanAllocs(t.Context(), p); n != 0 {
		t.Errorf("%v allocations for no span", n)
	}
}

// BenchmarkTracedCall is BenchmarkCall with a span.
func BenchmarkTracedCall(b *testing.B) { benchmarkTrace(b, spans.Discard()) }

// BenchmarkUntracedCall is BenchmarkCall without a provider.
func BenchmarkUntracedCall(b *testing.B) { benchmarkTrace(b, nil) }

func benchmarkTrace(b *testing.B, tp trace.TracerProvider) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	client, err := webhook.New(webhook.Options{AllowTargets: []string{"127.0.0.1"}, TracerProvider: tp})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	hook, err := webhook.Compile(webhook.Definition{Name: "h", Request: webhook.Request{URL: server.URL}})
	if err != nil {
		b.Fatal(err)
	}
	call := aCall()
	b.ReportAllocs()
	for b.Loop() {
		p, _ := client.Acquire(hook, call.ID, nil)
		if res := p.Call(b.Context(), call); res.Verdict != webhook.Succeeded {
			b.Fatalf("%+v", res)
		}
	}
}
