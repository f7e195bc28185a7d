package call_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
)

// traced returns the name, kind, status and attributes of a span.
func traced(s spans.Span) map[string]string {
	all := map[string]string{"name": s.Name(), "kind": s.SpanKind().String()}
	if s.Status().Code != codes.Unset {
		all["status"] = s.Status().Code.String() + s.Status().Description
	}
	for _, a := range s.Attributes() {
		if key := string(a.Key); key != "call.id" {
			all[key] = a.Value.String()
		}
	}
	return all
}

// TestASpanForEachTry: each try has a span below that of the caller, and the server gets its trace header.
func TestASpanForEachTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		made := spans.New()
		b := newBench(t, call.Options{TracerProvider: made}, status(503, "ServiceUnavailable", "secret of the object"),
			answer(200, web))
		ctx, caller := made.Start(t.Context(), "caller")
		r := get()
		r.Namespace, r.Query = "prod", map[string][]string{"fieldManager": {"hidden"}}
		if _, err := call.Do(ctx, b.client, r, call.Policy{}); err != nil {
			t.Fatal(err)
		}
		caller.End()
		tries := made.Named("get configmaps")
		want := map[string]string{
			"name": "get configmaps", "kind": "client", "http.request.method": "GET", "call.verb": "get",
			"call.resource": "configmaps", "call.name": "web", "k8s.namespace.name": "prod", "server.address": "server",
			"http.response.status_code": "503", "error.type": "503", "status": "Error",
		}
		if diff := cmp.Diff(want, traced(tries[0])); diff != "" {
			t.Errorf("the first try, -want +got:\n%s", diff)
		}
		want["http.response.status_code"], want["http.request.resend_count"] = "200", "1"
		delete(want, "error.type")
		delete(want, "status")
		if diff := cmp.Diff(want, traced(tries[1])); diff != "" {
			t.Errorf("the second try, -want +got:\n%s", diff)
		}
		for i, s := range tries {
			if !spans.IsChild(s, made.Named("caller")[0]) {
				t.Errorf("try %d is not below its caller", i)
			}
			if got := b.headers[i].Get("Traceparent"); !strings.Contains(got, s.SpanContext().SpanID().String()) {
				t.Errorf("the header is %q in try %d", got, i)
			}
			if id := b.headers[i].Get("Audit-Id"); spans.Value(s, "call.id") != id {
				t.Errorf("call.id is %q, the Audit-Id %q", spans.Value(s, "call.id"), id)
			}
		}
	})
}

// silent is a server that does not answer.
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// TestSpansOfFailures: a span never has text of the server or parts of a body.
func TestSpansOfFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason string
		reply  http.HandlerFunc
		change func(*call.Request)
		down   error
		want   string // error.type
		code   string
	}{
		{reason: "a conflict", reply: status(409, "Conflict", "secret"), want: "409", code: "409"},
		{reason: "an absence that is an error", reply: status(404, "NotFound", "secret"), want: "404", code: "404"},
		{
			reason: "an absence that is accepted", reply: status(404, "NotFound", "secret"),
			change: func(r *call.Request) { r.NotFoundOK = true }, code: "404",
		},
		{reason: "a server that does not answer", reply: silent, want: "timeout"},
		{reason: "no server", down: errors.New("secret"), want: "no-answer"},
	} {
		synctest.Test(t, func(t *testing.T) {
			made := spans.New()
			b := newBench(t, call.Options{TracerProvider: made}, tt.reply)
			if tt.down != nil {
				b.pipe.down = func() error { return tt.down }
			}
			r := get()
			if tt.change != nil {
				tt.change(&r)
			}
			_, _ = call.Do(t.Context(), b.client, r, call.Policy{Retries: -1})
			s := made.Named("get configmaps")
			if len(s) != 1 {
				t.Fatalf("%s: %d spans", tt.reason, len(s))
			}
			if got := traced(s[0]); got["error.type"] != tt.want || got["http.response.status_code"] != tt.code ||
				(got["status"] == "Error") != (tt.want != "") {
				t.Errorf("%s: %v", tt.reason, got)
			}
			for key, value := range traced(s[0]) {
				if strings.Contains(value, "secret") {
					t.Errorf("%s: %s is %q", tt.reason, key, value)
				}
			}
		})
	}
}

func TestACancelledTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		made := spans.New()
		b := newBench(t, call.Options{TracerProvider: made}, silent)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("canceled by the caller")) })
		_, _ = call.Do(ctx, b.client, get(), call.Policy{})
		if s := made.Named("get configmaps"); len(s) != 1 || spans.Value(s[0], "error.type") != "cancelled" {
			t.Errorf("%v", made.Names())
		}
	})
}

// TestAListIsASpanForEachPage: that holds for a streamed list, too.
func TestAListIsASpanForEachPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		made := spans.New()
		b := newBench(t, call.Options{TracerProvider: made}, status(503, "ServiceUnavailable", "x"),
			answer(200, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`))
		list := call.Request{Resource: configMaps}
		for _, err := range call.Stream[corev1.ConfigMap](t.Context(), b.client, list, call.Policy{}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		var codes []string
		for _, s := range made.Named("list configmaps") {
			codes = append(codes, spans.Value(s, "http.response.status_code"))
		}
		if !slices.Equal(codes, []string{"503", "200"}) {
			t.Errorf("the tries were %v of %v", codes, made.Names())
		}
	})
}

// TestNoProviderNoCost: without a provider, a try inside another span costs no more than outside, and sends no trace
// header.
func TestNoProviderNoCost(t *testing.T) {
	var header string
	c := canned(t, nil, func(r *http.Request) { header = r.Header.Get("Traceparent") })
	inSpan, span := spans.New().Start(t.Context(), "caller")
	defer span.End()
	costs := func(ctx context.Context) float64 {
		return spans.Allocs(func() {
			if _, err := call.Do(ctx, c, get(), call.Policy{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if plain, traced := costs(t.Context()), costs(inSpan); traced > plain {
		t.Errorf("%v allocations in a span, %v outside", traced, plain)
	}
	if header != "" {
		t.Errorf("the header is %q", header)
	}
}

// canned returns a client of a server that always gives the same answer, without a connection.
func canned(t testing.TB, tp trace.TracerProvider, look func(*http.Request)) *call.Client {
	t.Helper()
	c, err := call.New(call.Options{
		TracerProvider: tp, Config: &rest.Config{Host: "http://server"},
		HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if look != nil {
				look(r)
			}
			return &http.Response{
				StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(web)), Request: r,
			}, nil
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// BenchmarkDo measures a request without the network.
func BenchmarkDo(b *testing.B) { benchmarkDo(b, nil) }

// BenchmarkDoTraced measures the same with a span.
func BenchmarkDoTraced(b *testing.B) { benchmarkDo(b, spans.Discard()) }

func benchmarkDo(b *testing.B, tp trace.TracerProvider) {
	c := canned(b, tp, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := call.Do(b.Context(), c, get(), call.Policy{}); err != nil {
			b.Fatal(err)
		}
	}
}
