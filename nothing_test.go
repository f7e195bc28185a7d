package fairlead_test

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard"
)

// nothing returns calls of every constructor and function of the packages that a program uses, with nil and zero
// values. The clients are those of a runtime whose New has failed. Each call that can return an error has to return
// one.
func nothing(ctx context.Context) map[string]func() error {
	rt := fairlead.New(nil) // its clients are nil, and it is the host of the declarations
	c, stores, calls := rt.Client(), rt.Cache(), rt.Calls()
	type pod = corev1.Pod
	fails := func(_ any, err error) error { return orNone(err) }
	ok := func(...any) error { return nil }
	started := func(f *flow.Flow[int], e *flow.Engine) error { return fails(f.Start(ctx, e, nil, flow.StartOptions{})) }
	wait := func(w flow.Wait) error {
		_ = w.Watch(flow.Waker{})
		_, err := w.Check(ctx, true)
		_, cached := w.Check(ctx, false)
		return orNone(errors.Join(err, cached))
	}
	step := func(o flow.Option) error { // an option without a value, in a flow that runs
		e := flow.NewEngine(flow.EngineOptions{})
		defer e.Close(context.WithoutCancel(ctx))
		h, err := flow.New("one", flow.Step("only", func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.Next() },
			o)).
			Start(ctx, e, new(int), flow.StartOptions{})
		if err != nil {
			return err
		}
		<-h.Done()
		return nil
	}
	reads := func(o client.ReadOption) error { return orNone(c.List(ctx, &corev1.PodList{}, o)) }
	writes := func(o client.WriteOption) error { return orNone(c.Update(ctx, &pod{}, o)) }
	controls := func(o reconcile.Option) error { return ok(reconcile.New(rt, "options", reconcile.Func[pod](nil), o)) }
	watches := func(o reconcile.WatchOption) error { return controls(reconcile.Primary(o)) }
	nodes := func(o dependent.Option) error { // of a graph without other nodes
		g := dependent.For[pod]()
		dependent.Add[pod, pod](g, "pod", nil, o, dependent.Option{})
		return errors.Join(ok(g.Controller(rt, "nodes")), orNone(g.Err()))
	}
	noGraph := func() error {
		var g *dependent.Graph[pod]
		return ok(g.Controller(rt, ""), g.Err())
	}
	observes := func(o observe.Option) error { return ok(observe.On[pod](rt, "pods", nil, o)) }
	runs := func(o fairlead.Option) error { return orNone(fairlead.New(nil, o).Run(ctx)) }
	hooked := func(declare func(*admission.Hooks)) error {
		rt := fairlead.New(nil)
		declare(admission.Serve(rt, admission.Options{}))
		return orNone(rt.Run(ctx))
	}
	allocates := func(o alloc.Option) error { return fails(alloc.Once(ctx, c, &pod{}, "ip", nil, o)) }
	return map[string]func() error{
		"fairlead.Config":     func() error { return fails(fairlead.Config("/nowhere/kubeconfig")) },
		"fairlead.WithLinger": func() error { return runs(fairlead.WithLinger(0)) },
		"fairlead.IndexField": func() error {
			failed := fairlead.New(nil)
			fairlead.IndexField[pod](failed, "", nil)
			fairlead.IndexField(failed, "node", nodeOf, nil)
			return orNone(failed.Run(ctx))
		},
		"fairlead.New":         func() error { return runs(nil) },
		"fairlead.Serve":       func() error { return orNone(fairlead.Serve(ctx, nil, nil)) },
		"fairlead.WithConsole": func() error { return runs(fairlead.WithConsole(nil)) },
		"console.New":          func() error { return fails(console.New(console.Options{})) },
		"console.NewProxy":     func() error { return fails(console.NewProxy(console.ProxyOptions{})) },
		"console.Proxied":      func() error { return ok(console.Proxied(ctx)) },
		"fairlead.WithContent": func() error {
			return runs(fairlead.WithContent(schema.GroupKind{},
				store.Content{}))
		},
		"fairlead.WithSourceCondition": func() error { return runs(fairlead.WithSourceCondition(nil)) },
		"fairlead.WithDegraded":        func() error { return runs(fairlead.WithDegraded()) },
		"fairlead.WithDetectMutation":  func() error { return runs(fairlead.WithDetectMutation()) },
		"fairlead.WithDrain":           func() error { return runs(fairlead.WithDrain(0)) },
		"fairlead.WithFieldOwner":      func() error { return runs(fairlead.WithFieldOwner("")) },
		"fairlead.WithHotBytes":        func() error { return runs(fairlead.WithHotBytes(0)) },
		"fairlead.WithLeaderElection":  func() error { return runs(fairlead.WithLeaderElection("", "")) },
		"fairlead.WithLeadership": func() error {
			return errors.Join(runs(fairlead.WithLeadership(nil)), runs(fairlead.WithLeadership((*lease.Lease)(nil))))
		},
		"fairlead.WithListen":         func() error { return runs(fairlead.WithListen("")) },
		"fairlead.WithLogger":         func() error { return runs(fairlead.WithLogger(nil)) },
		"fairlead.WithMapper":         func() error { return runs(fairlead.WithMapper(nil)) },
		"fairlead.WithPersistence":    func() error { return runs(fairlead.WithPersistence("")) },
		"fairlead.WithRegistry":       func() error { return runs(fairlead.WithRegistry(nil)) },
		"fairlead.WithScheme":         func() error { return runs(fairlead.WithScheme(nil)) },
		"fairlead.ShardBy":            func() error { return ok(fairlead.ShardBy(shard.UID)) },
		"fairlead.WithShards":         func() error { return runs(fairlead.WithShards("", "", nil)) },
		"fairlead.WithSignals":        func() error { return runs(fairlead.WithSignals()) },
		"fairlead.WithSource":         func() error { return runs(fairlead.WithSource(nil)) },
		"fairlead.WithStaleness":      func() error { return runs(fairlead.WithStaleness(0)) },
		"fairlead.WithStopTimeout":    func() error { return runs(fairlead.WithStopTimeout(0)) },
		"fairlead.WithTracerProvider": func() error { return runs(fairlead.WithTracerProvider(nil)) },

		"admission.Convert": func() error {
			admission.Convert[pod, pod](nil, nil, nil)
			return hooked(func(h *admission.Hooks) { admission.Convert[pod, pod](h, nil, nil) })
		},
		"admission.Mutate": func() error {
			admission.Mutate[pod](nil, admission.Rule{}, nil)
			return hooked(func(h *admission.Hooks) { admission.Mutate[pod](h, admission.Rule{}, nil) })
		},
		"admission.Serve": func() error {
			return errors.Join(ok(admission.Serve(nil, admission.Options{}).Rights()), hooked(func(*admission.Hooks) {}))
		},
		"admission.Undecided": func() error { return ok(admission.Undecided(nil)) },
		"admission.Validate": func() error {
			admission.Validate[pod](nil, admission.Rule{}, nil)
			return hooked(func(h *admission.Hooks) { admission.Validate[pod](h, admission.Rule{}, nil) })
		},

		"alloc.Discard":       func() error { return allocates(alloc.Discard(nil)) },
		"alloc.Find":          func() error { return allocates(alloc.Find(nil)) },
		"alloc.Guard":         func() error { return allocates(alloc.Guard("")) },
		"alloc.Held":          func() error { return ok(alloc.Held(nil), alloc.Held((*pod)(nil))) },
		"alloc.Live":          func() error { return allocates(alloc.Live()) },
		"alloc.Once":          func() error { return fails(alloc.Once(ctx, c, (*pod)(nil), "", nil, nil)) },
		"alloc.Release":       func() error { return orNone(alloc.Release(ctx, c, (*pod)(nil), "", nil, nil)) },
		"alloc.Unguarded":     func() error { return allocates(alloc.Unguarded()) },
		"alloc.Values":        func() error { return ok(alloc.Values(nil), alloc.Values((*pod)(nil))) },
		"alloc.WithFinalizer": func() error { return ok(alloc.WithFinalizer(ctx, "")) },

		"client.Always":                func() error { return writes(client.Always()) },
		"client.Body":                  func() error { return writes(client.Body(nil)) },
		"client.Condition":             func() error { return wait(client.Condition[pod](c, client.Key{}, "")) },
		"client.DryRun":                func() error { return writes(client.DryRun()) },
		"client.Fields":                func() error { return reads(client.Fields("")) },
		"client.Force":                 func() error { return writes(client.Force()) },
		"client.Get":                   func() error { return fails(client.Get[pod](ctx, c, client.Key{})) },
		"client.Gone":                  func() error { return wait(client.Gone[pod](c, client.Key{})) },
		"client.Grace":                 func() error { return writes(client.Grace(0)) },
		"client.IgnoreNotFound":        func() error { return writes(client.IgnoreNotFound()) },
		"client.InNamespace":           func() error { return reads(client.InNamespace("")) },
		"client.Index":                 func() error { return reads(client.Index("", "")) },
		"client.KeyOf":                 func() error { return ok(client.KeyOf(nil), client.KeyOf((*pod)(nil))) },
		"client.Labels":                func() error { return reads(client.Labels("")) },
		"client.List":                  func() error { return each(client.List[pod](ctx, c, nil)) },
		"client.Live":                  func() error { return reads(client.Live()) },
		"client.Matching":              func() error { return reads(client.Matching(nil)) },
		"client.MergeFrom":             func() error { return orNone(c.Patch(ctx, nil, client.MergeFrom(nil))) },
		"client.Modify":                func() error { return orNone(client.Modify[pod](ctx, c, nil, nil, nil)) },
		"client.ModifyStatus":          func() error { return orNone(client.ModifyStatus[pod](ctx, c, nil, nil, nil)) },
		"client.New":                   func() error { return fails(client.New(client.Options{})) },
		"client.NewConfigMapPositions": func() error { return positions(ctx, client.NewConfigMapPositions(c, client.Key{})) },
		"client.NewStatusPosition":     func() error { return positions(ctx, client.NewStatusPosition[pod](c, nil, nil)) },
		"client.Overlay": func() error {
			get, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1", http.NoBody)
			if err != nil {
				return err
			}
			answer, err := client.Overlay(nil, nil, client.OverlayOptions{}).RoundTrip(get)
			if err == nil {
				_ = answer.Body.Close()
			}
			return orNone(err)
		},
		"client.OwnedBy":     func() error { return reads(client.OwnedBy(nil)) },
		"client.Owner":       func() error { return writes(client.Owner("")) },
		"client.Propagation": func() error { return writes(client.Propagation("")) },
		"client.RawPatch":    func() error { return orNone(c.Patch(ctx, nil, client.RawPatch("", nil))) },
		"client.SameUID":     func() error { return writes(client.SameUID()) },
		"client.SameVersion": func() error { return writes(client.SameVersion()) },
		"client.When":        func() error { return wait(client.When[pod](c, client.Key{}, nil)) },
		"client.WithPolicy":  func() error { return writes(client.WithPolicy(call.Policy{})) },

		"call.Do":   func() error { return fails(call.Do(ctx, calls, call.Request{}, call.Policy{})) },
		"call.List": func() error { return each(call.List[pod](ctx, calls, call.Request{}, call.Policy{})) },
		"call.New":  func() error { return fails(call.New(call.Options{})) },
		"call.Why": func() error {
			_, known := call.Why(nil)
			return ok(known)
		},
		"call.NewMetrics": func() error { return ok(call.NewMetrics()) },
		"call.Pages":      func() error { return each(call.Pages(ctx, calls, call.Request{}, call.Policy{})) },
		"call.Stream":     func() error { return each(call.Stream[pod](ctx, calls, call.Request{}, call.Policy{})) },
		"call.Step": func() error {
			return started(flow.New("calls", call.Step("one", calls, call.StepSpec[int]{})), nil)
		},

		"dependent.Add": func() error {
			g := dependent.For[pod]()
			n := dependent.Add[pod, pod](g, "", nil)
			return errors.Join(ok(n.After(nil, (*dependent.Node[pod])(nil)), n.Child(ctx), n.Children(ctx), n.In(nil),
				n.AllIn(nil),
				g.Controller(rt, "")), orNone(g.Err()))
		},
		"dependent.AddExternal": func() error {
			g := dependent.For[pod]()
			dependent.AddExternal(g, "", dependent.External[pod, int]{})
			return errors.Join(ok(g.Controller(rt, "graph")), orNone(g.Err()))
		},
		"dependent.AddSet": func() error {
			g := dependent.For[pod]()
			dependent.AddSet[pod, pod](g, "", nil)
			return errors.Join(ok(g.Controller(rt, "")), orNone(g.Err()))
		},
		"dependent.Adopt":     func() error { return nodes(dependent.Adopt()) },
		"dependent.After":     func() error { return nodes(dependent.After(nil)) },
		"dependent.Deleted":   func() error { return nodes(dependent.Deleted[pod](nil)) },
		"dependent.Elsewhere": func() error { return nodes(dependent.Elsewhere()) },
		"dependent.For":       func() error { return errors.Join(ok(dependent.For[pod]().Controller(rt, "")), noGraph()) },
		"dependent.If":        func() error { return nodes(dependent.If[pod](nil)) },
		"dependent.IsReady":   func() error { return ok(dependent.IsReady(&pod{}), dependent.IsReady[pod](nil)) },
		"dependent.Kind":      func() error { return nodes(dependent.Kind(schema.GroupVersionKind{})) },
		"dependent.Optional":  func() error { return nodes(dependent.Optional()) },
		"dependent.Labels":    func() error { return nodes(dependent.Labels("")) },
		"dependent.NoForce":   func() error { return nodes(dependent.NoForce()) },
		"dependent.Ready":     func() error { return nodes(dependent.Ready[pod](nil)) },
		"dependent.Recreate":  func() error { return nodes(dependent.Recreate()) },
		"dependent.Timeout":   func() error { return nodes(dependent.Timeout(0)) },
		"dependent.Watch":     func() error { return nodes(dependent.Watch(nil)) },
		"dependent.When":      func() error { return nodes(dependent.When[pod](nil)) },

		"flow.Blocking":    func() error { flow.Blocking(ctx, nil); return nil },
		"flow.Deadline":    func() error { return step(flow.Deadline(0)) },
		"flow.Detour":      func() error { return started(flow.New("f", flow.Detour[int]("", nil)), nil) },
		"flow.Do":          func() error { return started(flow.New("f", flow.Step("s", flow.Do[int](nil))), nil) },
		"flow.Done":        func() error { return ok(step(flow.Done[int](nil))) },
		"flow.FailFast":    func() error { return orNone(step(flow.FailFast())) },
		"flow.First":       func() error { return orNone(step(flow.First())) },
		"flow.Fork":        func() error { return started(flow.New("f", flow.Fork[int]("", nil)), nil) },
		"flow.FromContext": func() error { h, _ := flow.FromContext(ctx); return ok(h.Info(), h.Err(), h.Status()) },
		"flow.Fenced":      func() error { return ok(flow.Fenced(ctx)) },
		"flow.FiberSpan":   func() error { flow.FiberSpan(ctx).End(); return nil },
		"flow.Func":        func() error { return parked(ctx, flow.Func(nil, 0)) },
		"flow.Group":       func() error { return started(flow.New("f", flow.Group[int]("")), nil) },
		"flow.Inline": func() error {
			return started(flow.New("f", flow.Inline[int](nil), flow.Inline(&flow.Flow[int]{})), nil)
		},
		"flow.Limit": func() error { return orNone(step(flow.Limit(0))) },
		"flow.New": func() error {
			return errors.Join(started(flow.New[int](""), nil), started(nil, nil), started(&flow.Flow[int]{}, nil))
		},
		"flow.NewEngine": func() error {
			return errors.Join(started(flow.New[int]("f"), nil), started(flow.New[int]("f"), &flow.Engine{}))
		},
		"flow.OnError": func() error { return ok(step(flow.OnError(""))) },
		"flow.Provide": func() error { return ok(flow.New[int]("f").Provide(flow.Provide[any](nil))) },
		"flow.Quorum":  func() error { return ok(step(flow.Quorum(0))) },
		"flow.Retrace": func() error { return ok(flow.Retrace(ctx, ctx, flow.TraceOptions{})) },
		"flow.Retry":   func() error { return step(flow.Retry(flow.Backoff{})) },
		"flow.Save":    func() error { return step(flow.Save()) },
		"flow.Step":    func() error { return started(flow.New("f", flow.Step[int]("", nil)), nil) },
		"flow.Timeout": func() error { return ok(parked(ctx, flow.Timeout(0))) },
		"flow.To":      func() error { return ok(step(flow.To())) },
		"flow.Undo":    func() error { return ok(step(flow.Undo[int](nil))) },
		"flow.Until":   func() error { return ok(flow.Until(never)) },
		"flow.Use":     func() error { return inFiber(ctx, func(f *flow.Fiber[int]) { _, _ = flow.Use[any](f) }) },
		"flow.Value":   func() error { return inFiber(ctx, func(f *flow.Fiber[int]) { _, _ = flow.Value[any](f) }) },

		"observe.All":    func() error { return ok(observe.All()) },
		"observe.Async":  func() error { return observes(observe.Async(0)) },
		"observe.Every":  func() error { return observes(observe.Every(0)) },
		"observe.Filter": func() error { return ok(observe.Filter[pod](rt, "", "", nil)) },
		"observe.Join":   func() error { return ok(observe.Join[pod](rt, "")) },
		"observe.Known":  func() error { k := observe.Known[pod](rt, ""); return fails(k.Get(store.Key{})) },
		"observe.Map":    func() error { return ok(observe.Map[pod, pod](rt, "", "", nil)) },
		"observe.Name":   func() error { return observes(observe.Name("")) },
		"observe.NewRegistry": func() error {
			return orNone(declared(observe.NewRegistry(observe.RegistryOptions{})).Start(ctx))
		},
		"observe.On":           func() error { return ok(observe.On[pod](rt, "", nil, nil)) },
		"observe.OnFailure":    func() error { return observes(observe.OnFailure(0, 0)) },
		"observe.OnObject":     func() error { return ok(observe.OnObject(rt, "", nil, nil)) },
		"observe.Only":         func() error { return observes(observe.Only(0)) },
		"observe.Source":       func() error { return ok(observe.Source[pod](rt, "", nil).SetNamespaces()) },
		"observe.SourceFunc":   func() error { return ok(observe.SourceFunc[pod](rt, "", nil)) },
		"observe.SourceOfKind": func() error { return ok(observe.SourceOfKind(rt, "", schema.GroupVersionKind{}, nil)) },
		"observe.Via":          func() error { return observes(observe.Via(0, nil)) },

		"reconcile.After":        func() error { return ok(reconcile.After(0)) },
		"reconcile.AsTerminal":   func() error { return ok(reconcile.AsTerminal(nil)) },
		"reconcile.Causes":       func() error { return ok(reconcile.Causes(nil)) },
		"reconcile.Deadline":     func() error { return controls(reconcile.Deadline(0)) },
		"reconcile.DebugHandler": func() error { return shown(reconcile.DebugHandler(nil)) },
		"reconcile.Fault":        func() error { return controls(reconcile.Fault(nil)) },
		"reconcile.FiberKey":     func() error { return ok(reconcile.FiberKey("", reconcile.Key{})) },
		"reconcile.Finalizer":    func() error { return controls(reconcile.Finalizer("")) },
		"reconcile.Flow": func() error {
			return ok(reconcile.Flow(rt, "", nil, reconcile.Fibers[pod, int]{Flow: &flow.Flow[int]{}}, nil))
		},
		"reconcile.Follow": func() error {
			return errors.Join(orNone(reconcile.Follow[pod](nil, reconcile.Key{}, "", nil)),
				orNone(reconcile.Follow[pod](reconcile.New(rt, "", reconcile.Func[pod](nil)), reconcile.Key{}, "", nil)))
		},
		"reconcile.AnyOwner":      func() error { return controls(reconcile.Owns[pod](reconcile.AnyOwner())) },
		"reconcile.From":          func() error { return watches(reconcile.From(nil)) },
		"reconcile.If":            func() error { return watches(reconcile.If[pod](nil)) },
		"reconcile.IfChanged":     func() error { return watches(reconcile.IfChanged[pod](nil)) },
		"reconcile.IfSpecChanged": func() error { return watches(reconcile.IfSpecChanged()) },
		"reconcile.InfoFrom":      func() error { return ok(reconcile.InfoFrom(ctx)) },
		"reconcile.Kind":          func() error { return watches(reconcile.Kind(schema.GroupVersionKind{})) },
		"reconcile.Labeled":       func() error { return watches(reconcile.Labeled("")) },
		"reconcile.Leader":        func() error { return controls(reconcile.Leader(nil)) },
		"reconcile.Logger":        func() error { return controls(reconcile.Logger(nil)) },
		"reconcile.MaxAttempts":   func() error { return controls(reconcile.MaxAttempts(0)) },
		"reconcile.MaxInterval":   func() error { return controls(reconcile.MaxInterval(0)) },
		"reconcile.Named":         func() error { return watches(reconcile.Named("")) },
		"reconcile.Needs":         func() error { return controls(reconcile.Needs(rights.Right{})) },
		"reconcile.New":           func() error { return errors.Join(controls(nil), ok(reconcile.New[pod](rt, "", nil))) },
		"reconcile.NewRecorder": func() error {
			return orNone(reconcile.NewRecorder(c, "").Event(ctx, &pod{}, "", "", ""))
		},
		"reconcile.Only":           func() error { return watches(reconcile.Only()) },
		"reconcile.Optional":       func() error { return watches(reconcile.Optional()) },
		"reconcile.Priority":       func() error { return controls(reconcile.Priority[pod](nil)) },
		"reconcile.OnFailure":      func() error { return controls(reconcile.OnFailure(nil)) },
		"reconcile.OwnerReference": func() error { return fails(reconcile.OwnerReference(nil, nil)) },
		"reconcile.Own": func() error {
			return errors.Join(orNone(reconcile.Own(c, nil, nil)), orNone(reconcile.Own(c, &pod{}, &pod{})))
		},
		"reconcile.Owns":      func() error { return controls(reconcile.Owns[pod](nil)) },
		"reconcile.Preempt":   func() error { return controls(reconcile.Preempt()) },
		"reconcile.Primary":   func() error { return controls(reconcile.Primary(nil)) },
		"reconcile.RateLimit": func() error { return controls(reconcile.RateLimit(0, 0)) },
		"reconcile.Retry":     func() error { return ok(reconcile.Retry(nil)) },
		"reconcile.SetCondition": func() error {
			return ok(reconcile.SetCondition(nil, nil, "", "", "", ""),
				reconcile.SetCondition((*pod)(nil), &[]metav1.Condition{}, "", "", "", ""))
		},
		"reconcile.Stuck":          func() error { return controls(reconcile.Stuck(0)) },
		"reconcile.Terminal":       func() error { return ok(reconcile.Terminal(nil)) },
		"reconcile.TotalRateLimit": func() error { return controls(reconcile.TotalRateLimit(0, 0)) },
		"reconcile.TracerProvider": func() error { return controls(reconcile.TracerProvider(nil)) },
		"reconcile.Watches":        func() error { return controls(reconcile.Watches[pod](nil, nil)) },
		"reconcile.WithBackoff":    func() error { return controls(reconcile.WithBackoff(reconcile.Backoff{})) },
		"reconcile.WithDelay":      func() error { return controls(reconcile.WithDelay(nil)) },
		"reconcile.WithoutEvents":  func() error { return controls(reconcile.WithoutEvents()) },
		"reconcile.Workers":        func() error { return controls(reconcile.Workers(0)) },

		"lease.New": func() error { return fails(lease.New(nil, lease.Options{Namespace: "a", Name: "b"})) },

		"rights.Events": func() error { return ok(rights.Events()) },
		"rights.Lease":  func() error { return ok(rights.Lease("", "")) },
		"rights.Manifests": func() error {
			return fails(rights.Manifests(nil, rights.Account{}, []rights.Right{rights.Of(schema.GroupVersionKind{}, "get")}))
		},
		"rights.Merge": func() error { return ok(rights.Merge([]rights.Right{{}})) },
		"rights.Of":    func() error { return ok(rights.Of(schema.GroupVersionKind{})) },
		"rights.Rules": func() error {
			return fails(rights.Rules(nil, []rights.Right{rights.Of(schema.GroupVersionKind{}, "get")}))
		},
		"rights.Status": func() error { return ok(rights.Status(schema.GroupVersionKind{})) },
		"rights.YAML":   func() error { return fails(rights.YAML([]runtime.Object{nil})) },

		"cache.AcquireFor": func() error {
			return errors.Join(fails(cache.AcquireFor[pod](stores)), fails(cache.AcquireFor[pod](&cache.Cache{}, nil)))
		},
		"cache.BulkDeleteGuard": func() error { return ok(cache.BulkDeleteGuard(0)) },
		"cache.EverySlot":       func() error { return ok(cache.EverySlot()) },
		"cache.Fields":          func() error { return ok(cache.Fields("")) },
		"cache.IndexBy": func() error {
			return errors.Join(orNone(cache.IndexBy[pod](cache.View[pod]{}, "", nil)),
				orNone(cache.IndexBy(cache.Of[pod](nil), "node", nodeOf)))
		},
		"cache.Labels":        func() error { return ok(cache.Labels("")) },
		"cache.Namespaces":    func() error { return ok(cache.Namespaces()) },
		"cache.NewCache":      func() error { return fails(cache.NewCache(cache.CacheOptions{})) },
		"cache.Of":            func() error { return fails(cache.Of[pod](nil).Get(cache.Key{})) },
		"cache.SilenceBudget": func() error { return ok(cache.SilenceBudget(0)) },

		"store.AcquireFor": func() error {
			return errors.Join(fails(store.AcquireFor[pod](stores)), fails(store.AcquireFor[pod](&store.Cache{}, nil)))
		},
		"store.As":         func() error { return fails(store.As[pod](nil)) },
		"store.Collector":  func() error { return ok(prometheus.NewPedanticRegistry().Register(store.Collector(nil))) },
		"store.CountSlots": func() error { return ok(store.CountSlots(nil, &store.Store{})) },
		"store.DeclareIndex": func() error {
			return errors.Join(fails(store.DeclareIndex[pod](nil, "", "", nil)),
				fails(store.DeclareIndex(stores, "node", "", nodeOf)))
		},
		"store.FieldPath": func() error { return ok(store.FieldPath("")(nil)) },
		"store.IndexBy":   func() error { return orNone(store.IndexBy[pod](store.View[pod]{}, "", nil)) },
		"store.Metadata":  func() error { return fails(store.Metadata(nil).Get(store.Key{})) },
		"store.New": func() error {
			s := store.New(store.Options{})
			defer s.Close()
			return fails(store.Of[pod](s).Get(store.Key{}))
		},
		"store.NewCache":      func() error { return fails(store.NewCache(store.CacheOptions{})) },
		"store.Of":            func() error { return fails(store.Of[pod](nil).Get(store.Key{})) },
		"store.ParseDeletion": func() error { _, _, err := store.ParseDeletion(nil); return ok(err) },
		"store.Unstructured":  func() error { return fails(store.Unstructured(nil).Get(store.Key{})) },
	}
}
