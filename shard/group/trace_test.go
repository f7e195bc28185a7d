package group

import (
	"net/http"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
)

// TestSpans: requests that go well make no spans, nor do those in which members are in each other's way; one that fails
// or is slow makes one.
func TestSpans(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		made := spans.New()
		_, two, _ := w.three(Options{TracerProvider: made})
		two.stop()
		w.within(time.Second, 8, "a leave")
		w.play(time.Minute)
		if n := made.Names(); len(n) > 0 {
			t.Errorf("all is well, and there are %v", n)
		}
		renewals := apiserver.Match{Resource: "leases", Verb: "patch"}
		refused := w.server.On(renewals, apiserver.Answer(apiserver.Failure(http.StatusServiceUnavailable)))
		w.play(4 * time.Second)
		refused.Off()
		failed := made.Named("patch lease")
		if len(failed) == 0 {
			t.Fatal("of renewals that fail there are no spans")
		}
		if s := failed[0]; s.Status().Code != codes.Error || s.Status().Description != "" || s.Parent().IsValid() ||
			spans.Value(s, "error.type") != "ServiceUnavailable" ||
			spans.Value(s, "lease.identity") != "one" && spans.Value(s, "lease.identity") != "three" {
			t.Errorf("of a renewal that fails there is %+v", s)
		}
		w.play(10 * time.Second)
		before := len(made.Ended())
		slow := w.server.On(renewals, apiserver.Delay(1500*time.Millisecond))
		w.play(5 * time.Second)
		slow.Off()
		more := made.Ended()[before:]
		if len(more) == 0 || more[0].Status().Code != codes.Unset ||
			more[0].EndTime().Sub(more[0].StartTime()) < time.Second {
			t.Errorf("of renewals that are slow there are %v", more)
		}
		w.within(20*time.Second, 8, "the end")
	})
}
