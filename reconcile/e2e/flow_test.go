package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// site is the packet of these fibers: a gateway and a config map of its name. Another client marks the config map as
// ready.
type site struct {
	*reconcile.Task[gateway]
	j *journal
}

// journal records the steps of all processes.
type journal struct {
	mu       sync.Mutex
	ran      []string
	ends     []error
	problems []string
}

// note records a step, and checks that its Undo is certain to run.
func (j *journal) note(ctx context.Context, s *site, step string) {
	live := &gateway{}
	err := s.Client.Live().Get(ctx, client.KeyOf(s.Object), live)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ran = append(j.ran, fmt.Sprint(step, " ", s.Object.Spec.Size))
	if err != nil || len(live.Finalizers) == 0 {
		j.problems = append(j.problems, fmt.Sprintf("%s runs without the finalizer: %v, %v", step, live.Finalizers, err))
	}
}

func (s *site) config() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Object.Namespace, Name: s.Object.Name}}
}

var bringUp = flow.New("bring-up",
	flow.Step("create", flow.Do(func(ctx context.Context, s *site) error {
		s.j.note(ctx, s, "create")
		cm := s.config()
		cm.Data = map[string]string{"size": fmt.Sprint(s.Object.Spec.Size)}
		return s.Client.Apply(ctx, cm)
	}), flow.Undo(flow.Do(func(ctx context.Context, s *site) error {
		s.j.note(ctx, s, "remove")
		return s.Client.Delete(ctx, s.config(), client.IgnoreNotFound())
	}))),
	flow.Step("wait-ready", func(ctx context.Context, f *flow.Fiber[site]) flow.Next {
		s := f.Packet
		s.j.note(ctx, s, "wait-ready")
		s.SetStatus(func(g *gateway) error { g.Status.Note = map[string]string{"phase": "Waiting"}; return nil })
		return f.Await(client.When(s.Client, client.KeyOf(s.Object), func(cm *corev1.ConfigMap) (bool, error) {
			return cm != nil && cm.Annotations["ready"] == fmt.Sprint(s.Object.Spec.Size), nil
		}))
	}),
	flow.Step("report", flow.Do(func(ctx context.Context, s *site) error {
		s.j.note(ctx, s, "report")
		s.SetStatus(func(g *gateway) error {
			g.Status.Note, g.Status.Seen = map[string]string{"phase": "Ready"}, s.Object.Generation
			return nil
		})
		return nil
	}), flow.Undo(flow.Do(func(ctx context.Context, s *site) error {
		s.j.note(ctx, s, "unreport")
		return nil
	}))),
)

// operator runs a controller of flows until the returned function is called, which checks that all fibers have ended.
func (b *bench) operator(j *journal) (stop func()) {
	b.t.Helper()
	rt := fairlead.New(env.Config(b.t), fairlead.WithScheme(testbed.Scheme()),
		fairlead.WithSource(cache.Namespaces(b.namespace)))
	engine := flow.NewEngine(flow.EngineOptions{})
	reconcile.Flow(rt, "gateways", engine, reconcile.Fibers[gateway, site]{
		Flow:     bringUp,
		Packet:   func(_ context.Context, t *reconcile.Task[gateway]) (*site, error) { return &site{t, j}, nil },
		Position: func(g *gateway) **flow.Position { return &g.Status.Flow },
		OnEnd: func(_ *gateway, r flow.Result) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.ends = append(j.ends, r.Err)
		},
	}, reconcile.Finalizer("test.fairlead.io/flow"), reconcile.Owns[corev1.ConfigMap]())
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the runtime failed: %v", err)
		}
		// A fiber counts as live until shortly after OnEnd, and the controller ends with OnEnd.
		await(b.ctx, b.t, func() bool { return engine.Live() == 0 })
		if err := engine.Close(context.WithoutCancel(b.ctx)); err != nil {
			b.t.Error(err)
		}
	})
}

// at waits until the stored position is at a step, for a generation.
func (b *bench) at(name, step string, generation int64) *gateway {
	b.t.Helper()
	var g *gateway
	await(b.ctx, b.t, func() bool {
		g = b.get(name)
		return g != nil && g.Status.Flow != nil && g.Status.Flow.Step == step && g.Status.Flow.Generation == generation
	})
	return g
}

// A flow per object goes through all of its events. Its position is in the status, the program restarts during it, the
// spec changes, it ends and is undone.
func TestFlowPerObject(t *testing.T) {
	b := setup(t)
	j := &journal{}
	stop := b.operator(j)
	t.Cleanup(func() { stop() })
	b.create("web")
	saved := b.at("web", "wait-ready", 1)
	if saved.Status.Flow.Flow != "bring-up" || saved.Status.Flow.Reason != "await" ||
		saved.Status.Note["phase"] != "Waiting" {
		t.Errorf("the status is %+v with position %+v", saved.Status, saved.Status.Flow)
	}

	stop()
	if p := b.get("web").Status.Flow; p.Ended || p.Token != saved.Status.Flow.Token {
		t.Errorf("after the stop the position is %+v, want the previous one", p)
	}
	stop = b.operator(j)
	await(b.ctx, t, func() bool { j.mu.Lock(); defer j.mu.Unlock(); return len(j.ran) == 3 }) // at the saved step

	if err := client.Modify(b.ctx, b.user, b.get("web"),
		func(g *gateway) error { g.Spec.Size = 2; return nil }); err != nil {
		t.Fatal(err)
	}
	preempting := b.at("web", "wait-ready", 2)
	if preempting.Status.Flow.Token == saved.Status.Flow.Token {
		t.Error("the fiber of the new spec has the token of the previous one")
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "web"}}
	if err := client.Modify(b.ctx, b.user, cm, func(cm *corev1.ConfigMap) error {
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, "ready", "2")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var ready *gateway
	await(b.ctx, t, func() bool { ready = b.at("web", "report", 2); return ready.Status.Flow.Ended })
	if p := ready.Status.Flow; p.Reason != "completed" || ready.Status.Seen != 2 || ready.Status.Note["phase"] != "Ready" {
		t.Errorf("at the end the status is %+v with position %+v", ready.Status, p)
	}

	if err := b.user.Delete(b.ctx, b.get("web")); err != nil {
		t.Fatal(err)
	}
	await(b.ctx, t, func() bool { return b.get("web") == nil })
	if err := b.user.Get(b.ctx, client.KeyOf(cm), cm); !apierrors.IsNotFound(err) {
		t.Errorf("the object of the flow still exists: %v", err)
	}
	stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	want := []string{
		"create 1", "wait-ready 1", // the process ends
		"wait-ready 1",             // and resumes there
		"create 2", "wait-ready 2", // the spec has changed
		"report 2",
		"unreport 2", "remove 2",
	}
	if diff := cmp.Diff(want, j.ran); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if len(j.problems) > 0 {
		t.Error(j.problems)
	}
	causes := []error{flow.ErrInterrupted, flow.ErrPreempted, nil, nil}
	if !slices.EqualFunc(j.ends, causes, errors.Is) {
		t.Errorf("the fibers have ended with %q, want %q", j.ends, causes)
	}
}
