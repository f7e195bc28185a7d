// Package machines brings up machines of a cloud with a flow.
package machines

import (
	"context"
	"time"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Cloud is the provider of the machines.
type Cloud interface {
	ReserveIP(ctx context.Context, idempotencyKey string) (ip string, err error)
	ReleaseIP(ctx context.Context, idempotencyKey, ip string) error
	Boot(ctx context.Context, name, ip string) error // changes nothing if the machine exists
	Running(ctx context.Context, name string) (bool, error)
	Stop(ctx context.Context, name string) error // changes nothing if there is no machine
}

type task = reconcile.Task[Machine] // the object of the fiber, and a client

// Declare declares the controller of machines.
func Declare(rt *fairlead.Runtime, cloud Cloud) {
	bringUp := flow.New("bring-up",
		flow.Step("address", flow.Do(func(ctx context.Context, t *task) error {
			_, err := alloc.Once(ctx, t.Client, t.Object, "ip", cloud.ReserveIP)
			return err
		}), flow.Undo(flow.Do(func(ctx context.Context, t *task) error {
			return alloc.Release(ctx, t.Client, t.Object, "ip", cloud.ReleaseIP)
		}))),
		flow.Step("boot", flow.Do(func(ctx context.Context, t *task) (err error) {
			flow.Blocking(ctx, func() { err = cloud.Boot(ctx, t.Object.Name, alloc.Values(t.Object)["ip"]) })
			return err
		}), flow.Retry(flow.Backoff{Base: time.Second, Max: time.Minute}),
			flow.Undo(flow.Do(func(ctx context.Context, t *task) error {
				return cloud.Stop(ctx, t.Object.Name)
			}))),
		flow.Step("wait-running", func(_ context.Context, f *flow.Fiber[task]) flow.Next {
			name := f.Packet.Object.Name
			running := func(ctx context.Context) (bool, error) { return cloud.Running(ctx, name) }
			return f.Await(flow.Func(running, 10*time.Second), flow.Timeout(15*time.Minute))
		}),
		flow.Step("report", flow.Do(func(_ context.Context, t *task) error {
			ready := t.Object.Generation
			t.SetStatus(func(m *Machine) error { m.Status.ReadyGeneration = ready; return nil })
			return nil
		})),
	)
	engine := flow.NewEngine(flow.EngineOptions{})
	rt.Flows(engine)
	reconcile.Flow(rt, "machines", engine, reconcile.Fibers[Machine, task]{
		Flow:     bringUp,
		Packet:   func(_ context.Context, t *task) (*task, error) { return t, nil },
		Position: func(m *Machine) **flow.Position { return &m.Status.Flow },
	}, reconcile.Finalizer("example.com/machines"))
}
