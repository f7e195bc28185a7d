package call

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"k8s.io/apimachinery/pkg/runtime/schema"

	recorded "github.com/fairlead-io/fairlead/internal/tracing/spans"
)

// TestWarningsPart checks that each warning is logged once, other codes never, and that the memory is bounded.
func TestWarningsPart(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	w := warnings{to: slog.New(slog.NewTextHandler(&logged, nil))}
	with := func(headers ...string) *http.Response {
		return &http.Response{Header: http.Header{"Warning": headers}}
	}
	w.log(t.Context(), with())
	for range 2 {
		w.log(t.Context(), with(`299 - "it is deprecated"`, `199 - "another code"`))
	}
	if text := logged.String(); strings.Count(text, "it is deprecated") != 1 || strings.Contains(text, "another code") {
		t.Errorf("logged is %q", text)
	}
	for i := range 2 * maxWarnings {
		w.log(t.Context(), with(fmt.Sprintf(`299 - "number %d"`, i)))
	}
	if n := strings.Count(logged.String(), "number"); n != maxWarnings-1 || len(w.seen) != maxWarnings {
		t.Errorf("%d further warnings are logged, and %d known", n, len(w.seen))
	}
}

// TestSpansPart checks the name, the attributes and the header of a try, and that there is no span without a tracer.
func TestSpansPart(t *testing.T) {
	t.Parallel()
	made := recorded.New()
	server := &url.URL{Scheme: "https", Host: "api.example.com:6443"}
	r := &Request{
		Verb: VerbUpdate, Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Namespace: "n", Name: "web", Subresource: "status",
	}
	none, header := spans{server: server}, http.Header{}
	if _, span := none.start(t.Context(), r, "id", 0); span != nil {
		t.Error("there is a span without a tracer")
	}
	if none.inject(t.Context(), header); len(header) > 0 {
		t.Errorf("without a tracer the header is %v", header)
	}
	s := spans{tracer: made.Tracer("call"), server: server}
	ctx, span := s.start(t.Context(), r, "id", 2)
	if s.inject(ctx, header); header.Get("Traceparent") == "" {
		t.Errorf("the header is %v", header)
	}
	endSpan(t.Context(), span, r, answer{code: http.StatusConflict})
	all := made.Named("update deployments/status")
	if len(all) != 1 || all[0].Status().Code != codes.Error {
		t.Fatalf("the spans are %q", made.Names())
	}
	for key, want := range map[string]string{
		"server.address": "api.example.com", "server.port": "6443", "call.name": "web",
		"http.request.resend_count": "2", "error.type": "409",
	} {
		if got := recorded.Value(all[0], key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}
