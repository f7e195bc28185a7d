// Package admissiontest runs webhooks of package admission in tests, against a real API server on the local machine:
//
//	var env clustertest.Env
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }
//
//	func TestHooks(t *testing.T) {
//		hooks := admissiontest.Start(t, env.Config(t), func(h *admission.Hooks) {
//			admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed}, checkPage)
//		}, fairlead.WithScheme(scheme))
//
// // now the API server calls checkPage, for objects in hooks.Namespace only
//
//	}
//
// The hooks are called only for objects in the namespace of the test, so tests can share a control plane. For
// cluster-scoped objects they are called in all cases.
package admissiontest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// Hooks are webhooks that run in a test.
type Hooks struct {
	*admission.Hooks
	// Runtime is the runtime that serves the hooks.
	Runtime *fairlead.Runtime
	// Namespace is the namespace for which hooks are called. System is the namespace of the program, for which they are
	// not.
	Namespace, System string
	// Options are the options of the hooks. They can be used to start a second replica.
	Options admission.Options

	stop func()
}

// label marks the namespaces of a test.
const label = "fairlead.io/admissiontest"

// Start creates two namespaces, declares hooks, and returns when the API server calls them. declare may also declare
// indexes on the runtime, and use its client in the hooks. The test fails if Start takes more than five minutes. When
// the test ends, the hooks stop and their configuration is removed. Start does not wait for conversions: a test must
// retry until a conversion succeeds.
func Start(
	t testing.TB, config *rest.Config, declare func(*fairlead.Runtime, *admission.Hooks), opts ...fairlead.Option,
) *Hooks {
	t.Helper()
	return StartWith(t, config, admission.Options{}, declare, opts...)
}

// StartWith is like Start with options. It fills in unset names, namespaces and addresses.
func StartWith(
	t testing.TB, config *rest.Config, o admission.Options, declare func(*fairlead.Runtime, *admission.Hooks),
	opts ...fairlead.Option,
) *Hooks {
	t.Helper()
	h := &Hooks{Options: o}
	if h.Options.Namespace == "" {
		h.Options.Namespace = clustertest.Namespace(t, config)
	}
	h.System = h.Options.Namespace
	if h.Options.Name == "" {
		h.Options.Name = h.System
	}
	if h.Options.URL == "" && h.Options.Service == "" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		h.Options.Listener, h.Options.URL = listener, "https://"+listener.Addr().String()
	}
	if h.Options.Linger == 0 {
		h.Options.Linger = -1
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	ns, err := api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: h.System + "-", Labels: map[string]string{label: h.System},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("cannot make a namespace: %v", err)
	}
	h.Namespace = ns.Name
	h.Options.Only = &metav1.LabelSelector{MatchLabels: map[string]string{label: h.System}}
	h.Runtime = fairlead.New(config, append(opts, fairlead.WithStopTimeout(testlimit.Wait))...)
	h.Hooks = admission.Serve(h.Runtime, h.Options)
	declare(h.Runtime, h.Hooks)
	var ended <-chan struct{}
	h.stop, ended = run(t, h.Runtime)
	t.Cleanup(func() {
		h.stop()
		remove(t, api, h.Options.Name)
	})
	await(ctx, t, h.Hooks, ended)
	probe(ctx, t, config, api, h.System)
	return h
}

// run runs a runtime until stop is called or the test ends. ended is closed when Run has returned.
func run(t testing.TB, rt *fairlead.Runtime) (stop func(), ended <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = rt.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if <-done; err != nil {
			t.Errorf("the runtime of the hooks: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop, done
}

// await waits until hooks are served. It fails the test at once if their runtime ends; stop reports its error.
func await(ctx context.Context, t testing.TB, h *admission.Hooks, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-h.Ready():
	case <-ended:
		t.Fatal("the runtime of the hooks has ended")
	case <-ctx.Done():
		t.Fatal("the hooks were not served within five minutes")
	}
}

// Stop stops the hooks before the test ends, to simulate downtime; the configuration stays. It must be called from the
// goroutine of the test.
func (h *Hooks) Stop() { h.stop() }

// remove removes the configuration of hooks from the API server.
func remove(t testing.TB, api kubernetes.Interface, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testlimit.Wait)
	defer cancel()
	names := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	err := api.AdmissionregistrationV1().ValidatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{},
		names)
	if err = errors.Join(err, api.AdmissionregistrationV1().MutatingWebhookConfigurations().
		DeleteCollection(ctx, metav1.DeleteOptions{}, names)); err != nil {
		t.Errorf("cannot remove the hooks: %v", err)
	}
}

// probe returns when the API server calls hooks in another namespace that are configured after those of the test. The
// API server applies configurations in order.
func probe(ctx context.Context, t testing.TB, config *rest.Config, api kubernetes.Interface, namespace string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := clustertest.Namespace(t, config)
	rt := fairlead.New(config)
	h := admission.Serve(rt, admission.Options{
		Name: own, Namespace: own, Listener: listener, URL: "https://" + listener.Addr().String(), Linger: -1,
		Only: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
	})
	rule := admission.Rule{OnFailure: admission.FailOpen, Operations: []admission.Operation{admission.Create}}
	admission.Mutate(h, rule, func(_ context.Context, r *admission.Request[corev1.ConfigMap]) error {
		r.Object.Data = map[string]string{own: "mutated"}
		return nil
	})
	admission.Validate(h, rule, func(_ context.Context, r *admission.Request[corev1.ConfigMap]) error {
		if r.Object.Data[own] == "" {
			return nil
		}
		return errors.New(own + " asks")
	})
	stop, ended := run(t, rt)
	defer remove(t, api, own)
	defer stop()
	await(ctx, t, h, ended)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := api.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: own}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), own+" asks") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the API server does not ask the hooks: %v, last %v", context.Cause(ctx), err)
		}
	}
}
