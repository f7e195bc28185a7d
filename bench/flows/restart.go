package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/bench/internal/rounds"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
)

// widget is the object of a waiting fiber or reconciler.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            widgetStatus `json:"status,omitempty"`
}

type widgetStatus struct {
	Position *flow.Position `json:"position,omitempty"`
}

func (w *widget) DeepCopyObject() runtime.Object {
	out := &widget{TypeMeta: w.TypeMeta, Status: widgetStatus{w.Status.Position.DeepCopy()}}
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

type widgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []widget `json:"items"`
}

func (l *widgetList) DeepCopyObject() runtime.Object {
	out := &widgetList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*widget))
	}
	return out
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	gvk := apiserver.Widgets().GVK()
	s.AddKnownTypeWithName(gvk, &widget{})
	s.AddKnownTypeWithName(gvk.GroupVersion().WithKind("WidgetList"), &widgetList{})
	metav1.AddToGroupVersion(s, gvk.GroupVersion())
	return s
}

var waiting = flow.New("waiting",
	flow.Step("begin", flow.Do(func(context.Context, *widget) error { return nil })),
	flow.Step("wait", func(_ context.Context, f *flow.Fiber[widget]) flow.Next { return f.Delay(time.Hour) }),
	flow.Step("end", flow.Do(func(context.Context, *widget) error { return nil })),
)

// savedWidgets returns a server with n widgets whose saved fibers wait for another hour.
func savedWidgets(n int) (*apiserver.Server, error) {
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	err = s.Preload(apiserver.Widgets().GVR(), n, func(i int, version string) apiserver.Encoded {
		w := widget{
			TypeMeta: metav1.TypeMeta{APIVersion: "example.fairlead.io/v1", Kind: "Widget"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: fmt.Sprintf("namespace-%d", i%50), Name: fmt.Sprintf("widget-%d", i), ResourceVersion: version,
				UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)), Generation: 1,
			},
			Status: widgetStatus{&flow.Position{
				Flow: waiting.Name(), Generation: 1, Step: "end", Reason: "delay", Begun: now, Started: now,
				Wake: now.Add(time.Hour), Token: fmt.Sprint(i),
			}},
		}
		raw, err := json.Marshal(w)
		if err != nil {
			panic(err) // cannot fail
		}
		return apiserver.Encoded{Namespace: w.Namespace, Name: w.Name, JSON: raw}
	})
	return s, err
}

// rowF4 measures the time from the start of a process until all saved fibers wait again.
func rowF4(s sizes, out io.Writer) ([]rounds.Result, error) {
	server, err := savedWidgets(s.saved)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	results, err := rounds.Run(s.rounds,
		rounds.Peer{Name: "fibers, positions in the status", Run: func() ([]float64, error) {
			return restartFibers(server.Config(), s.saved)
		}},
		rounds.Peer{Name: "fibers, positions in memory", Run: func() ([]float64, error) { return restartInMemory(s.saved) }},
		rounds.Peer{Name: "controller-runtime: list, Reconcile, RequeueAfter", Run: func() ([]float64, error) {
			return restartController(server.Config(), s.saved)
		}},
	)
	if err != nil {
		return nil, err
	}
	rounds.Print(out, fmt.Sprintf("F4: restart with %d that wait, list included", s.saved), []string{"ms"}, results)
	return results, nil
}

var errStarted = errors.New("all are armed")

func restartFibers(cfg *rest.Config, n int) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	rt := fairlead.New(cfg, fairlead.WithScheme(scheme()), fairlead.WithLogger(slog.New(slog.DiscardHandler)))
	e := flow.NewEngine(flow.EngineOptions{})
	all := observe.Selector("widgets")
	observe.Source[widget](rt, all)
	observe.On(rt, all, func(ctx context.Context, ev observe.Event[widget]) error {
		w := ev.Object()
		if ev.Type != observe.Added {
			return nil
		}
		_, err := waiting.Start(ctx, e, w, flow.StartOptions{
			Key: ev.Key.String(), Generation: w.Generation,
			Positions: client.NewStatusPosition(rt.Client(), w, func(w *widget) **flow.Position { return &w.Status.Position }),
		})
		return err
	})
	var took time.Duration
	rt.Add("armed", func(ctx context.Context) error {
		if err := armed(ctx, e, n); err != nil {
			return err
		}
		took = time.Since(began)
		if err := e.Close(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		return errStarted
	})
	if err := rt.Run(ctx); !errors.Is(err, errStarted) {
		return nil, fmt.Errorf("cannot measure: %w", err)
	}
	return []float64{float64(took.Microseconds()) / 1000}, nil
}

// armed waits until n fibers wait for their timers.
func armed(ctx context.Context, e *flow.Engine, n int) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if e.Live() == n {
			waits := 0
			for i := range e.Fibers() {
				if i.Status == flow.Parked && i.Why == "delay" && !i.Until.IsZero() {
					waits++
				}
			}
			if waits == n {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func restartInMemory(n int) ([]float64, error) {
	ctx := context.Background()
	var saved flow.Memory
	now := time.Now().UTC()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("namespace-%d/widget-%d", i%50, i)
		if err := saved.Save(ctx, keys[i], flow.Position{
			Flow: waiting.Name(), Step: "end", Reason: "delay", Begun: now,
			Started: now, Wake: now.Add(time.Hour), Token: keys[i],
		}); err != nil {
			return nil, err
		}
	}
	e := flow.NewEngine(flow.EngineOptions{})
	began := time.Now()
	for _, key := range keys {
		if _, err := waiting.Start(ctx, e, &widget{}, flow.StartOptions{Key: key, Positions: &saved}); err != nil {
			return nil, err
		}
	}
	if err := armed(ctx, e, n); err != nil {
		return nil, err
	}
	took := time.Since(began)
	return []float64{float64(took.Microseconds()) / 1000}, e.Close(ctx)
}

func restartController(cfg *rest.Config, n int) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	mgr, err := manager.New(cfg, manager.Options{
		Scheme: scheme(), Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true), MaxConcurrentReconciles: 64},
	})
	if err != nil {
		return nil, err
	}
	var left atomic.Int64
	left.Store(int64(n))
	var took time.Duration
	err = builder.ControllerManagedBy(mgr).For(&widget{}).Complete(
		reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			var w widget
			if err := mgr.GetClient().Get(ctx, r.NamespacedName, &w); err != nil {
				return reconcile.Result{}, ctrlclient.IgnoreNotFound(err)
			}
			if left.Add(-1) == 0 {
				took = time.Since(began)
				cancel()
			}
			return reconcile.Result{RequeueAfter: time.Until(w.Status.Position.Wake)}, nil
		}),
	)
	if err != nil {
		return nil, err
	}
	if err := mgr.Start(ctx); err != nil {
		return nil, err
	}
	return []float64{float64(took.Microseconds()) / 1000}, nil
}
