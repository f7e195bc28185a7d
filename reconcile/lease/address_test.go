package lease_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhyAddress: a process that does not lead reports the address of the leader, and not that of its predecessor.
func TestWhyAddress(t *testing.T) {
	bubble(t, func(e *election) {
		run := func(name, address string) (*lease.Lease, func()) {
			l, err := lease.New(e.server.Config(), lease.Options{
				Namespace: "a", Name: "gateways", Identity: name, Address: address,
			})
			if err != nil {
				e.t.Fatal(err)
			}
			ctx, stop := context.WithCancel(e.t.Context())
			ended := make(chan error, 1)
			go func() { ended <- l.Run(ctx) }()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			return l, func() {
				stop()
				if err := <-ended; err != nil {
					e.t.Error(err)
				}
			}
		}
		one, stopOne := run("web-1_7", "http://10.0.0.7:8081")
		two, stopTwo := run("web-2_8", "")
		defer stopTwo()
		three, stopThree := run("web-3_9", "")
		defer stopThree()
		got := two.Why(e.t.Context(), why.Object{})
		if len(got) != 1 || got[0].Evidence["address"] != "http://10.0.0.7:8081" || got[0].Evidence["host"] != "web-1" ||
			!strings.Contains(got[0].Message, "at http://10.0.0.7:8081") {
			e.t.Errorf("the address of the leader is missing: %+v", got)
		}
		if one.Why(e.t.Context(), why.Object{}) != nil || two.Address() != "http://10.0.0.7:8081" {
			e.t.Errorf("the address is %q", two.Address())
		}
		stopOne()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		standby := three
		if leads(e.t, three) {
			standby = two
		}
		leader, _ := standby.Status()
		host, _, _ := strings.Cut(leader, "_")
		got = standby.Why(e.t.Context(), why.Object{})
		if len(got) != 1 || got[0].Evidence["address"] != "" ||
			!strings.Contains(got[0].Advice, "kubectl port-forward -n a pod/"+host) {
			e.t.Errorf("a leader without an address: %+v", got)
		}
	})
}
