// Package fairlead is the front door of Fairlead, the asynchronous runtime for Kubernetes operators.
//
// A program declares what it wants to see and what it does about it, then runs:
//
//	var CertainConfigMaps = observe.Selector("certain-configmaps")
//
//	rt := fairlead.New(cfg)
//	observe.Source[corev1.ConfigMap](rt, CertainConfigMaps, source.Namespaces("team-a", "team-b"), source.Labels("app=web"))
//	observe.On(rt, CertainConfigMaps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
//		slog.InfoContext(ctx, "configmap", "type", e.Type, "key", e.Key)
//		return nil
//	})
//	err := rt.Run(ctx)
//
// [Runtime.Run] checks the declarations and reports all mistakes together, before any request is made. Then it starts the
// cache, the observers and whatever else was added with [Runtime.Add], and returns when the context ends or one of them
// fails, after everything has stopped, in the reverse order.
//
// Reads and writes go through [Runtime.Client]: what was written is seen by the next read, whatever the watch does.
//
// [Runtime.Handler] serves /healthz, /readyz, /metrics and /debug/observers. Health is staleness below a bound, not
// "synced once".
//
// The layers can be used alone too; architecture.md in the repository names them in the order in which to read them.
package fairlead
