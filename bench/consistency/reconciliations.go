package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/bench/internal/rounds"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/reconcile"
)

// ownWrites is the number of status writes of a reconciler of row C2 in one call.
const ownWrites = 3

// counter counts the calls of a reconciler for each object.
type counter struct {
	mu    sync.Mutex
	calls map[string]int
	last  time.Time
}

func (c *counter) called(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[name]++
	c.last = time.Now()
}

// rowC2 counts the reconciliations that own status writes cause. Each object is created, and its reconciler writes
// the status several times.
func rowC2(ctx context.Context, cfg *rest.Config, namespace string, s sizes, out io.Writer) error {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	var peers []rounds.Peer
	for i, p := range []struct {
		name string
		run  func(ctx context.Context, cfg *rest.Config, namespace string, c *counter) error
	}{
		{"Fairlead", ourController},
		{"controller-runtime", theirController},
		{"controller-runtime, GenerationChangedPredicate", theirDeafController},
	} {
		ns := fmt.Sprintf("%s-%d", namespace, i)
		if _, err := clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
			metav1.CreateOptions{}); err != nil {
			return err
		}
		c := &counter{calls: map[string]int{}}
		running, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- p.run(running, cfg, ns, c) }()
		defer func() { cancel(); <-done }()
		round := 0
		peers = append(peers, rounds.Peer{Name: p.name, Run: func() ([]float64, error) {
			round++
			return reconciliations(ctx, clients, ns, fmt.Sprint("r", round, "-"), s.runs, c, done)
		}})
	}
	results, err := rounds.Run(s.rounds, peers...)
	if err != nil {
		return err
	}
	rounds.Print(out,
		fmt.Sprintf(
			"C2: reconciliations of a new Deployment whose reconciler writes its status %d times; "+
				"%d Deployments in each round; real kube-apiserver", ownWrites, s.runs,
		),
		[]string{"reconciliations of one, mean", "most", "% with exactly one"}, results)
	return nil
}

// reconciliations creates objects and counts the calls for each, until there was no call for a while.
func reconciliations(
	ctx context.Context, clients kubernetes.Interface, ns, prefix string, n int, c *counter, ended <-chan error,
) ([]float64, error) {
	labels := map[string]string{"app": "x"}
	for i := range n {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(prefix, i)}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		}}
		if _, err := clients.AppsV1().Deployments(ns).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	const quiet, patience = time.Second, time.Minute // the events of own writes arrive within milliseconds
	tick := time.NewTicker(quiet / 10)
	defer tick.Stop()
	for begun := time.Now(); ; {
		c.mu.Lock()
		seen, most, total, once := 0, 0, 0, 0
		for i := range n {
			k := c.calls[fmt.Sprint(prefix, i)]
			seen, most, total = seen+min(k, 1), max(most, k), total+k
			if k == 1 {
				once++
			}
		}
		rest := time.Since(c.last)
		c.mu.Unlock()
		if seen == n && rest > quiet {
			return []float64{float64(total) / float64(n), float64(most), 100 * float64(once) / float64(n)}, nil
		}
		if time.Since(begun) > patience {
			return nil, fmt.Errorf("%d of %d objects are reconciled after %v", seen, n, patience)
		}
		select {
		case <-tick.C:
		case err := <-ended:
			return nil, fmt.Errorf("the controller has ended: %w", err)
		}
	}
}

func ourController(ctx context.Context, cfg *rest.Config, ns string, c *counter) error {
	rt := fairlead.New(cfg, fairlead.WithScheme(scheme.Scheme), fairlead.WithSource(source.Namespaces(ns)))
	reconcile.New(rt, "deployments",
		reconcile.Func[appsv1.Deployment](func(ctx context.Context, d *appsv1.Deployment) (reconcile.Result, error) {
			c.called(d.Name)
			for range ownWrites {
				if err := client.ModifyStatus(ctx, rt.Client(), d,
					func(d *appsv1.Deployment) error { d.Status.ObservedGeneration++; return nil }); err != nil {
					return reconcile.Retry(err)
				}
			}
			return reconcile.Done, nil
		}))
	return rt.Run(ctx)
}

func theirController(ctx context.Context, cfg *rest.Config, ns string, c *counter) error {
	return controllerRuntime(ctx, cfg, ns, c)
}

// theirDeafController ignores all changes of the status, also those by others.
func theirDeafController(ctx context.Context, cfg *rest.Config, ns string, c *counter) error {
	return controllerRuntime(ctx, cfg, ns, c, builder.WithPredicates(predicate.GenerationChangedPredicate{}))
}

func controllerRuntime(ctx context.Context, cfg *rest.Config, ns string, c *counter, opts ...builder.ForOption) error {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme.Scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}},
		Controller: config.Controller{SkipNameValidation: new(true), MaxConcurrentReconciles: 8},
	})
	if err != nil {
		return err
	}
	cl := mgr.GetClient()
	err = ctrl.NewControllerManagedBy(mgr).For(&appsv1.Deployment{},
		opts...).Complete(reconcilerFunc(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
		var d appsv1.Deployment
		if err := cl.Get(ctx, r.NamespacedName, &d); err != nil {
			return ctrl.Result{}, err
		}
		c.called(d.Name)
		if d.Status.ObservedGeneration >= ownWrites { // already written; otherwise the loop would never end
			return ctrl.Result{}, nil
		}
		for range ownWrites {
			d.Status.ObservedGeneration++
			if err := cl.Status().Update(ctx, &d); err != nil {
				return ctrl.Result{}, err
			}
		}
		return ctrl.Result{}, nil
	}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

type reconcilerFunc func(context.Context, ctrl.Request) (ctrl.Result, error)

// Reconcile implements reconcile.Reconciler of controller-runtime.
func (f reconcilerFunc) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	return f(ctx, r)
}
