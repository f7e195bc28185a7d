package fairlead

import (
	"context"
	"errors"
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/why"
)

// Status returns the current state of the runtime, for the console. It includes at most failures failing objects of
// each controller; a negative value includes all.
func (rt *Runtime) Status(failures int) inspect.Runtime {
	s := inspect.Runtime{Sources: sourcesOf(rt.declared.members()), Controllers: []inspect.Controller{}}
	rt.health.fill(&s)
	for _, c := range rt.declared.overseen() {
		s.Controllers = append(s.Controllers, c.Describe(failures))
	}
	if since, blocked := rt.engines.get().BlockedSince(); blocked {
		s.FlowsBlockedSince = &since
	}
	return s
}

// Fibers yields the live fibers of the runtime's engine, oldest first.
func (rt *Runtime) Fibers() iter.Seq[flow.Info] {
	e := rt.engines.get()
	if e == nil {
		return func(func(flow.Info) bool) {}
	}
	return e.Fibers()
}

// Explain adds e to the sources of [Runtime.Why], before all others. It is for parts of the program besides controllers
// that know causes. It may be called at any time. An explainer that panics contributes no cause. An explainer with a
// method Finalizer(group, kind string) (string, bool) names its own finalizer, as controllers do; Why then does not
// report that finalizer as foreign.
func (rt *Runtime) Explain(e why.Explainer) {
	if e == nil {
		rt.declared.mistake(errors.New("cannot add an explainer: it is nil"))
		return
	}
	rt.declared.explain(e)
}

// Why explains why an object does not make progress. It asks the explainers added with Explain and the controllers of
// the kind. It examines the fibers of these controllers, and the fibers of Flows with the key "namespace/name" or
// "Kind/namespace/name". It also checks leadership or slot ownership, the age of the known state, and the object
// itself. The cause is NotSelected if no part of the program works on the object. It is why.Ended if all work is done;
// the object is then not stuck.
//
// The kind may be written as in kubectl: "Deployment", "deploy", "deployments.apps"; the answer has the real name. The
// group may be omitted. With several clusters, Why asks each one that has the kind.
//
// The error matches [why.ErrNotFound] if the object does not exist and no state under its name is known. A kind that
// the API server does not have is another error. Why may be called at any time and concurrently. It takes a few seconds
// if the API server does not answer.
func (rt *Runtime) Why(ctx context.Context, of why.Object) (why.Answer, error) {
	return whyIn(ctx, rt.declared.members(), of)
}

// ResourceOf returns the resource of an object on the API server. It also returns the object with the real names of its
// group and kind, and without a namespace if the kind is cluster-scoped. The kind is resolved as in [Runtime.Why].
func (rt *Runtime) ResourceOf(of why.Object) (schema.GroupVersionResource, why.Object, error) {
	return resourceIn(rt.declared.members(), of)
}
