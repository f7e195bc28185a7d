package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// An engine that is closed or drained during a controller's run ends the controller with an error. Otherwise the
// controller would do nothing without a report.
func TestEngineClosedEarly(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		when   string
		end    func(e *flow.Engine) error
	}{
		{"closed before the start", "before", func(e *flow.Engine) error { return e.Close(context.Background()) }},
		{"closed while a fiber waits", "waiting", func(e *flow.Engine) error { return e.Close(context.Background()) }},
		{"closed without an object", "empty", func(e *flow.Engine) error { return e.Close(context.Background()) }},
		{"drained", "empty", func(e *flow.Engine) error { return e.Drain(context.Background()) }},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubbleOf(t, func(b *bench) {
				var s script
				var log logbook
				_, e := b.flows(&s, false, log.option())
				defer e.Close(context.Background())
				end := func() {
					if err := tc.end(e); err != nil {
						t.Error(err)
					}
				}
				if tc.when == "before" {
					end()
				}
				if tc.when != "empty" {
					b.put("web")
				}
				b.start()
				switch tc.when {
				case "waiting":
					end()
				case "empty":
					end()
					b.put("web")
				}
				b.settle()
				err := b.host.Stop()
				if !errors.Is(err, reconcile.ErrEngineClosed) || !strings.Contains(err.Error(), `"gateways"`) {
					t.Errorf("the host ends with %v", err)
				}
				if !strings.Contains(log.String(), "has failed permanently") {
					t.Errorf("the log is empty:\n%s", log.String())
				}
			})
		})
	}
}

// A fiber that another caller cancels, or that fails with an error of a closed engine, is an ordinary failure.
func TestFibersCanceledByOthers(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{flow.ErrInterrupted, flow.ErrClosed} {
		t.Run(cause.Error(), func(t *testing.T) {
			bubble(t, func(b *bench) {
				runs := 0
				engine := flow.NewEngine(flow.EngineOptions{})
				defer engine.Close(context.Background())
				c := reconcile.Flow(b.host, "gateways", engine, reconcile.Fibers[gateway, gateway]{
					Flow: flow.New("up", flow.Step("only", flow.Do(func(context.Context, *gateway) error {
						if runs++; runs > 1 {
							return nil
						}
						return cause
					}))),
					Position: func(g *gateway) **flow.Position { return &g.Status.Flow },
				}, reconcile.MaxInterval(-1))
				b.put("web")
				b.start()
				testbed.Settle(time.Minute)
				if runs != 2 || len(c.Failures()) != 0 {
					t.Errorf("the fiber ran %d times, failures are %v", runs, c.Failures())
				}
			})
		})
	}
}

// In a degraded host a controller waits for a kind that does not exist yet. In another host it fails.
func TestDegradedControllers(t *testing.T) {
	t.Parallel()
	for _, degraded := range []bool{false, true} {
		t.Run(map[bool]string{false: "not degraded", true: "degraded"}[degraded], func(t *testing.T) {
			t.Parallel()
			bubbleOf(t, func(b *bench) {
				server := testbed.Server(t, apiserver.Options{Resources: []apiserver.Resource{}})
				defer server.Close()
				b.host = testbed.NewHost(t, server.Config(), nil)
				var log logbook
				h := b.overseer(reconcile.Inherited{Degraded: degraded, Logger: log.Logger()})
				ran := 0
				c := reconcile.New[gateway](h, "gateways",
					reconcile.Func[gateway](func(context.Context, *gateway) (reconcile.Result, error) {
						ran++
						return reconcile.Done, nil
					}), reconcile.MaxInterval(-1))
				b.start()
				want := map[bool]inspect.State{false: inspect.StateStopped, true: inspect.StateBlocked}[degraded]
				if d := c.Describe(-1); d.State != want || !strings.Contains(d.Error, "CustomResourceDefinition") {
					t.Errorf("the controller is described as %+v", d)
				}
				for _, r := range testbed.Resources() {
					server.Register(r)
				}
				testbed.Put(t, server, testbed.New("a", "web"))
				testbed.Settle(time.Minute)
				if degraded != (ran == 1) {
					t.Errorf("%d reconciliations after the kind was installed", ran)
				}
				if err := b.host.Stop(); degraded != (err == nil) {
					t.Errorf("the host ends with %v", err)
				}
				if degraded != strings.Contains(log.String(), "cannot start, trying again") {
					t.Errorf("the log says:\n%s", log.String())
				}
			})
		})
	}
}
