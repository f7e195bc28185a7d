package flow_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/flow"
)

// Domain is the packet of the flow.
type Domain struct {
	Name    string
	Servers []string
	Admin   flow.Signal // set when the admin server is ready
}

// A flow brings up a domain: the admin server, a wait without a goroutine, then the managed servers, eight at a time.
func Example() {
	startAdmin := func(ctx context.Context, d *Domain) error {
		fmt.Println("starting the admin server of", d.Name)
		go d.Admin.Set() // outside of the process
		return nil
	}
	var printing sync.Mutex
	startServer := flow.New[string]("server",
		flow.Step("start", flow.Do(func(ctx context.Context, name *string) error {
			printing.Lock()
			defer printing.Unlock()
			fmt.Println("starting", *name)
			return nil
		})))
	bringUp := flow.New[Domain]("bring-up",
		flow.Step("admin-server", flow.Do(startAdmin)),
		flow.Step("wait-ready", func(ctx context.Context, f *flow.Fiber[Domain]) flow.Next {
			return f.Await(&f.Packet.Admin, flow.Timeout(5*time.Minute))
		}),
		flow.Fork("managed-servers", func(ctx context.Context, f *flow.Fiber[Domain]) ([]flow.Child, error) {
			var servers []flow.Child
			for i := range f.Packet.Servers {
				servers = append(servers, startServer.Child(f.Packet.Servers[i], &f.Packet.Servers[i]))
			}
			return servers, nil
		}, flow.Limit(8)),
	)

	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	h, err := bringUp.Start(context.Background(), engine, &Domain{Name: "orders", Servers: []string{"one", "two"}},
		flow.StartOptions{Key: "prod/orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("done:", h.Wait(context.Background()))
	// Unordered output:
	// starting the admin server of orders
	// starting one
	// starting two
	// done: <nil>
}

// A conflict goes to a detour, which reads again and comes back.
func ExampleDetour() {
	version := 1 // on the server
	type object struct{ version int }
	update := flow.New("update",
		flow.Step("write", func(ctx context.Context, f *flow.Fiber[object]) flow.Next {
			if f.Packet.version != version {
				fmt.Println("conflict, attempt", f.Attempt())
				return f.Goto("read-again")
			}
			fmt.Println("written, attempt", f.Attempt())
			return f.Next()
		}, flow.To("read-again")),
		flow.Detour("read-again", flow.Do(func(ctx context.Context, o *object) error { o.version = version; return nil })),
	)
	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	h, _ := update.Start(context.Background(), engine, &object{}, flow.StartOptions{})
	fmt.Println(h.Wait(context.Background()))
	// Output:
	// conflict, attempt 0
	// written, attempt 1
	// <nil>
}

// A step that waits for an external answer passes its token on and suspends.
func ExampleToken() {
	answers := make(chan flow.Token, 1)
	ask := flow.New("ask",
		flow.Step("ask", func(ctx context.Context, f *flow.Fiber[string]) flow.Next {
			t := f.Token()
			answers <- t // may be resumed before the step has returned
			return f.Suspend(t)
		}, flow.Deadline(time.Minute)),
		flow.Step("answered", func(ctx context.Context, f *flow.Fiber[string]) flow.Next {
			*f.Packet, _ = flow.Value[string](f)
			return f.Next()
		}))
	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	var got string
	h, _ := ask.Start(context.Background(), engine, &got, flow.StartOptions{})
	t := <-answers
	fmt.Println(t.Resume("42"), t.Resume("43"))
	fmt.Println(h.Wait(context.Background()), got)
	// Output:
	// true false
	// <nil> 42
}

// A newer fiber of a key takes over; a client that holds the context of the older one finds that it must not write.
func ExampleFenced() {
	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	running := make(chan struct{})
	slow := flow.New("slow", flow.Step("work", flow.Do(func(ctx context.Context, p *int) error {
		close(running)
		<-ctx.Done()
		fmt.Println(flow.Fenced(ctx))
		return ctx.Err()
	})))
	next := flow.New("next", flow.Step("work", flow.Do(func(ctx context.Context, p *int) error {
		fmt.Println(flow.Fenced(ctx))
		return nil
	})))
	old, _ := slow.Start(context.Background(), engine, new(int), flow.StartOptions{Key: "prod/orders"})
	<-running
	h, _ := next.Start(context.Background(), engine, new(int), flow.StartOptions{Key: "prod/orders", Mode: flow.Preempt})
	h.Wait(context.Background())
	fmt.Println(errors.Is(old.Err(), flow.ErrPreempted))
	// Output:
	// slow/work: cancelled: preempted by a newer fiber of the key
	// <nil>
	// true
}

// After a restart a durable fiber continues at its saved step. Earlier steps do not run again.
func ExamplePositions() {
	var store flow.Memory // in the status of an object, for instance
	var ready flow.Signal
	provision := flow.New("provision",
		flow.Step("reserve", func(ctx context.Context, f *flow.Fiber[int]) flow.Next {
			fmt.Println("reserve")
			return f.Next()
		}, flow.Save()),
		flow.Step("wait", func(ctx context.Context, f *flow.Fiber[int]) flow.Next {
			fmt.Println("wait")
			return f.Await(&ready, flow.Timeout(time.Hour)) // a restart shortens the wait by the time that has passed
		}))
	opt := flow.StartOptions{Key: "prod/orders", Positions: &store}

	before := flow.NewEngine(flow.EngineOptions{})
	h, _ := provision.Start(context.Background(), before, new(int), opt)
	for h.Info().Why != "await" {
		time.Sleep(time.Millisecond)
	}
	before.Close(context.Background())
	ready.Set()

	after := flow.NewEngine(flow.EngineOptions{})
	defer after.Close(context.Background())
	h, _ = provision.Start(context.Background(), after, new(int), opt)
	fmt.Println(h.Wait(context.Background()))
	// Output:
	// reserve
	// wait
	// wait
	// <nil>
}

// Undo runs the undo steps in reverse, from the last step that was begun.
func ExampleUndo() {
	undo := func(what string) flow.Option {
		return flow.Undo(func(ctx context.Context, f *flow.Fiber[int]) flow.Next {
			fmt.Println("undo", what)
			return f.Next()
		})
	}
	fine := flow.Do(func(context.Context, *int) error { return nil })
	fl := flow.New("create",
		flow.Step("network", fine, undo("network")),
		flow.Step("disk", fine, undo("disk")),
		flow.Step("machine", flow.Do(func(context.Context, *int) error { return errors.New("no capacity") }),
			undo("machine")),
		flow.Step("address", fine, undo("address")))
	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	h, _ := fl.Start(context.Background(), engine, new(int), flow.StartOptions{})
	fmt.Println(h.Wait(context.Background()))
	h, _ = fl.Undo(context.Background(), engine, new(int), flow.StartOptions{From: h.Step()})
	fmt.Println(h.Wait(context.Background()))
	// Output:
	// create/machine: no capacity
	// undo machine
	// undo disk
	// undo network
	// <nil>
}

// Providers hand steps what they need, by type.
func ExampleUse() {
	type Region string
	engine := flow.NewEngine(flow.EngineOptions{Providers: []flow.Provider{flow.Provide(Region("eu"))}})
	defer engine.Close(context.Background())
	fl := flow.New("f", flow.Step("a", func(ctx context.Context, f *flow.Fiber[int]) flow.Next {
		region, ok := flow.Use[Region](f)
		fmt.Println(region, ok)
		return f.Next()
	}))
	for _, opt := range []flow.StartOptions{{}, {Providers: []flow.Provider{flow.Provide(Region("us"))}}} {
		h, _ := fl.Start(context.Background(), engine, new(int), opt)
		h.Wait(context.Background())
	}
	// Output:
	// eu true
	// us true
}

// Fibers are shown at /debug/flows and in metrics.
func ExampleEngine_DebugHandler() {
	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	mux := http.NewServeMux()
	mux.Handle("/debug/flows", engine.DebugHandler())
	registry := prometheus.NewRegistry()
	registry.MustRegister(engine.Collector())
	for info := range engine.Stuck(10 * time.Minute) {
		fmt.Fprintln(os.Stderr, info.Path, "is", info.Status, info.Why, "since", info.Since, "after", info.Trail)
	}
	// Output:
}
