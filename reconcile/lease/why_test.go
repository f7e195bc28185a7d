package lease_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhy: a process that does not lead reports the leader, and since when it leads.
func TestWhy(t *testing.T) {
	bubble(t, func(e *election) {
		nothing := func(context.Context, *client.Client, *testbed.Gateway) error { return nil }
		began := time.Now()
		one := e.start("one", nothing)
		defer one.stop()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		two := e.start("two", nothing)
		defer two.stop()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := one.lease.Why(e.t.Context(), why.Object{}); got != nil {
			e.t.Errorf("the leader reports %+v", got)
		}
		got := two.lease.Why(e.t.Context(), why.Object{})
		if len(got) != 1 || got[0].Type != why.NotLeading || got[0].Evidence["leader"] != "one" ||
			got[0].Evidence["lease"] != "a/gateways" || got[0].Since.Before(began.Add(-time.Second)) ||
			got[0].Since.After(began.Add(4*time.Second)) {
			e.t.Errorf("the other process reports %+v", got)
		}
		if got[0].Evidence["unrenewed"] != "" {
			e.t.Errorf("a leader that renews: %+v", got)
		}
		silent := e.server.On(apiserver.Match{Resource: "leases", Func: func(r apiserver.Request) bool {
			return r.Verb == "update" && bytes.Contains(r.Body, []byte("one"))
		}}, apiserver.Drop())
		// The standby reads every 2 to 4.5 seconds, and takes over after 15 seconds without an observed renewal.
		for range 200 {
			testbed.Settle(100 * time.Millisecond)
			got = two.lease.Why(e.t.Context(), why.Object{})
			if len(got) != 1 || got[0].Evidence["unrenewed"] != "" {
				break
			}
		}
		if silent.Off(); len(got) != 1 || got[0].Evidence["unrenewed"] == "" ||
			!strings.Contains(got[0].Message, "seems to be dead") {
			e.t.Errorf("a leader that does not renew: %+v", got)
		}
		var none *lease.Lease
		if none.Why(e.t.Context(), why.Object{}) != nil {
			e.t.Error("no process leads")
		}
	})
}
