package lease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// TestSpans: successful renewals have no spans. Each failed or slow renewal has one.
func TestSpans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := testbed.Server(t, apiserver.Options{})
		defer server.Close()
		made := spans.New()
		l, err := lease.New(server.Config(), lease.Options{
			Namespace: "a", Name: "gateways", Identity: "one",
			TracerProvider: made,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(ctx) }) // ends with the context
		defer func() { stop(); running.Wait() }()
		testbed.Settle(time.Minute)
		if n := made.Names(); len(n) > 0 || !leads(t, l) {
			t.Errorf("leads: %t, spans: %v", leads(t, l), n)
		}
		updates := apiserver.Match{Resource: "leases", Verb: "update"}
		refused := server.On(updates, apiserver.Answer(metav1.Status{
			Status: metav1.StatusFailure, Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: "secret",
		}))
		testbed.Settle(5 * time.Second)
		refused.Off()
		failed := made.Named("update lease")
		if len(failed) == 0 || failed[0].Status().Code != codes.Error || failed[0].Status().Description != "" ||
			spans.Value(failed[0], "error.type") != "ServiceUnavailable" ||
			spans.Value(failed[0], "lease.name") != "a/gateways" ||
			spans.Value(failed[0], "lease.identity") != "one" || failed[0].Parent().IsValid() {
			t.Errorf("failed renewals have the spans %+v", failed)
		}
		testbed.Settle(10 * time.Second)
		before := len(made.Ended())
		slow := server.On(updates, apiserver.Delay(1500*time.Millisecond))
		testbed.Settle(10 * time.Second)
		slow.Off()
		more := made.Ended()[before:]
		if len(more) == 0 || more[0].Status().Code != codes.Unset ||
			more[0].EndTime().Sub(more[0].StartTime()) < time.Second {
			t.Errorf("slow renewals have the spans %v", more)
		}
	})
}
