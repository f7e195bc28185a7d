package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/access"
)

// SetClock replaces the clock of the cache of answers.
func (k *Kubernetes) SetClock(now func() time.Time) { k.Now = now }

// TracedAllocs returns how many allocations the tracing of a request takes.
func TracedAllocs(tp trace.TracerProvider) float64 {
	traced := traced(tp, http.NewServeMux(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/operations", nil)
	return testing.AllocsPerRun(100, func() { traced.ServeHTTP(w, r) })
}

// OpenAPI is the description of the API.
func OpenAPI() []byte { return openAPI }

// ProblemOf converts an error to a problem.
func ProblemOf(err error) *Problem { return problemOf(err) }

// NewProxyAt is NewProxy with a clock.
func NewProxyAt(o ProxyOptions, now func() time.Time) (*Proxy, error) {
	return access.NewProxyAt(o, now)
}
