package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"

	"github.com/fairlead-io/fairlead/internal/tracing/spans"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

const callerTrace = "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"

// kept returns the trace of the caller that the Operation app/1 stores.
func (a *api) kept() (parent, state string) {
	a.t.Helper()
	scheduler, err := operations.NewScheduler(operations.Options{
		Config: a.config, Calls: a.calls, Namespace: a.namespace,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	defer scheduler.Close()
	op, err := scheduler.Get(a.ctx, operations.Resource{Type: "app", ID: "1"})
	if err != nil {
		a.t.Fatal(err)
	}
	return op.Annotations[v1alpha1.AnnotationTraceParent], op.Annotations[v1alpha1.AnnotationTraceState]
}

// TestTheTraceOfTheCaller: a scheduled operation stores the caller's trace. With a provider it stores a span below that
// of the caller.
func TestTheTraceOfTheCaller(t *testing.T) {
	t.Run("without a provider", func(t *testing.T) {
		a := setup(t, anonymous)
		got := a.do("", "POST", "/operations", deletion, "traceparent", callerTrace, "tracestate", "vendor=1")
		if got.status != http.StatusAccepted {
			t.Fatalf("%+v", got)
		}
		if parent, state := a.kept(); parent != callerTrace || state != "vendor=1" {
			t.Errorf("kept is %q, %q", parent, state)
		}
	})
	t.Run("of no caller", func(t *testing.T) {
		a := setup(t, anonymous)
		a.do("", "POST", "/operations", deletion, "traceparent", "00-nonsense", "tracestate", "vendor=1")
		if parent, state := a.kept(); parent != "" || state != "" {
			t.Errorf("kept is %q, %q", parent, state)
		}
	})
	t.Run("with a provider", func(t *testing.T) {
		made := spans.New()
		a := setup(t, func(o *httpapi.Options) { anonymous(o); o.TracerProvider = made })
		a.do("", "POST", "/operations", deletion, "traceparent", callerTrace)
		s := made.Await(t, "POST /operations", 1)[0]
		if s.Parent().SpanID().String() != "0102030405060708" || !s.Parent().IsRemote() {
			t.Errorf("its parent is %v", s.Parent())
		}
		if parent, _ := a.kept(); !strings.Contains(parent, s.SpanContext().SpanID().String()) ||
			!strings.HasPrefix(parent, callerTrace[:35]) {
			t.Errorf("stored is %q, of the span %v", parent, s.SpanContext())
		}
	})
}

// TestTheSpansOfRequests: each request except an event stream has a span. The span is named by route and has no data of
// the caller.
func TestTheSpansOfRequests(t *testing.T) {
	made := spans.New()
	a := setup(t, func(o *httpapi.Options) { o.TracerProvider = made })
	a.do("all", "POST", "/operations", deletion)
	for _, tt := range []struct {
		user, method, path, route string
		want                      string
	}{
		{"all", "POST", "/operations", "/operations", "409"},
		{"reader", "GET", "/operations/app/1?namespace=" + a.namespace, "/operations/{type}/{id}", "200"},
		{"nobody", "GET", "/operations", "/operations", "403"},
		{"forged", "POST", "/operations/app/1:cancel", "/operations/{type}/{id}", "401"},
		{"", "POST", "/callbacks/secretsecretsecret", "/callbacks/{token}", "404"},
		{"", "GET", "/secret", "", "404"},
		{"", "SECRET", "/secret", "", "404"},
	} {
		before := len(made.Ended())
		body := deletion
		if tt.want == "409" {
			body = strings.Replace(body, "Delete", "Update", 1)
		}
		a.do(tt.user, tt.method, tt.path, body)
		method := tt.method
		if method == "SECRET" {
			method = "_OTHER"
		}
		name := strings.TrimSpace(method + " " + tt.route)
		var s spans.Span
		for s == nil {
			for _, each := range made.Await(t, name, 1) {
				if len(made.Ended()) > before && each == made.Ended()[len(made.Ended())-1] {
					s = each
				}
			}
		}
		attributes := map[string]string{}
		for _, attr := range s.Attributes() {
			attributes[string(attr.Key)] = attr.Value.String()
		}
		want := map[string]string{"http.request.method": method, "http.response.status_code": tt.want}
		if tt.route != "" {
			want["http.route"] = tt.route
		}
		if diff := cmp.Diff(want, attributes); diff != "" || s.Status().Code != codes.Unset ||
			s.SpanKind().String() != "server" {
			t.Errorf("%s %s: -want +got:\n%s%v", tt.method, tt.path, diff, s.Status())
		}
	}
	before := len(made.Ended())
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(a.ctx, "GET", "/operations/app/2/events", nil)
	r.Header.Set("Authorization", "Bearer "+a.tokens["reader"])
	a.handler.ServeHTTP(w, r)
	if len(made.Ended()) != before {
		t.Errorf("an event stream has a span: %v", made.Names()[before:])
	}
}

// TestNoProviderNoCost: a request without a trace causes no extra allocations.
func TestNoProviderNoCost(t *testing.T) {
	plain := httpapi.TracedAllocs(nil)
	if plain != 0 {
		t.Errorf("%v allocations for no span", plain)
	}
	if httpapi.TracedAllocs(spans.Discard()) == 0 {
		t.Error("a span costs nothing, so this measures nothing")
	}
}
