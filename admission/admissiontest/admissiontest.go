// Package admissiontest runs webhooks of package admission in tests, against a real API server on this machine:
//
//	var env clustertest.Env
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }
//
//	func TestHooks(t *testing.T) {
//		hooks := admissiontest.Start(t, env.Config(t), func(h *admission.Hooks) {
//			admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed}, checkPage)
//		}, fairlead.WithScheme(scheme))
//		// now the API server asks checkPage, about objects in hooks.Namespace and nowhere else
//	}
//
// Hooks of the types of a scheme are asked about the namespace of the test only, so that tests which share a control
// plane do not meet: about objects that are in no namespace they are asked everywhere.
package admissiontest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

// Hooks are webhooks that run in a test.
type Hooks struct {
	*admission.Hooks
	// Runtime serves them.
	Runtime *fairlead.Runtime
	// Namespace is one that the hooks are asked about, System one that they are not: the program's own.
	Namespace, System string
	// Options are those that they are served with; a second replica can be made of them.
	Options admission.Options

	stop func()
}

// label marks the namespaces of a test.
const label = "fairlead.io/admissiontest"

// Start makes two namespaces, declares hooks, and returns when the API server asks them. The test fails when that is not
// so within 30 seconds. They stop, and their configuration is removed, when the test ends.
func Start(
	t testing.TB, config *rest.Config, declare func(*admission.Hooks), opts ...fairlead.Option,
) *Hooks {
	t.Helper()
	return StartWith(t, config, admission.Options{}, declare, opts...)
}

// StartWith is Start with options; names, namespaces and addresses that are not set are made.
func StartWith(
	t testing.TB, config *rest.Config, o admission.Options, declare func(*admission.Hooks), opts ...fairlead.Option,
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ns, err := api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: h.System + "-", Labels: map[string]string{label: h.System},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("cannot make a namespace: %v", err)
	}
	h.Namespace = ns.Name
	p := probe{name: "probe-" + h.System, says: "asked " + h.System}
	h.Runtime = fairlead.New(config, append(opts, fairlead.WithStopTimeout(30*time.Second))...)
	h.Hooks = admission.Serve(h.Runtime, h.Options)
	declare(h.Hooks)
	p.declare(h)
	h.run(t)
	t.Cleanup(func() { h.remove(t, api) })
	select {
	case <-h.Ready():
	case <-ctx.Done():
		t.Fatal("the hooks were not served within 30 seconds")
	}
	if err := p.wait(ctx, api, h.Namespace); err != nil {
		t.Fatalf("the API server does not ask the hooks: %v", err)
	}
	return h
}

// run runs the runtime until the test ends, or Stop.
func (h *Hooks) run(t testing.TB) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- h.Runtime.Run(ctx) }()
	stopped := false
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the runtime of the hooks: %v", err)
		}
	}
}

// Selector is what a rule has for Namespaces to be asked about the namespace of the test only.
func (h *Hooks) Selector() *metav1.LabelSelector { return Selector(h.System) }

// Selector selects the namespace that belongs to a program in a namespace.
func Selector(system string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{label: system}}
}

// Stop stops the hooks before the test ends, as when the program is down: what is configured stays. Call it from the
// goroutine of the test.
func (h *Hooks) Stop() { h.stop() }

// remove stops the hooks and has the API server forget them.
func (h *Hooks) remove(t testing.TB, api kubernetes.Interface) {
	h.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	names := metav1.ListOptions{FieldSelector: "metadata.name=" + h.Options.Name}
	for what, err := range map[string]error{
		"validating": api.AdmissionregistrationV1().ValidatingWebhookConfigurations().
			DeleteCollection(ctx, metav1.DeleteOptions{}, names),
		"mutating": api.AdmissionregistrationV1().MutatingWebhookConfigurations().
			DeleteCollection(ctx, metav1.DeleteOptions{}, names),
	} {
		if err != nil {
			t.Errorf("cannot remove the %s hooks: %v", what, err)
		}
	}
}

// probe is a pair of hooks that tell when the API server asks: it learns of one configuration at once.
type probe struct{ name, says string }

func (p probe) declare(h *Hooks) {
	rule := func(does string) admission.Rule {
		return admission.Rule{
			Name: does + ".probe.admissiontest.fairlead.io", OnFailure: admission.FailOpen,
			Operations: []admission.Operation{admission.Create}, Namespaces: h.Selector(),
			Objects: &metav1.LabelSelector{MatchLabels: map[string]string{label: p.name}},
		}
	}
	admission.Mutate(h.Hooks, rule("mutate"), func(_ context.Context, r *admission.Request[corev1.ConfigMap]) error {
		r.Object.Data = map[string]string{"mutated": "yes"}
		return nil
	})
	admission.Validate(h.Hooks, rule("validate"), func(_ context.Context, r *admission.Request[corev1.ConfigMap]) error {
		return fmt.Errorf("%s, mutated: %s", p.says, r.Object.Data["mutated"])
	})
}

func (p probe) wait(ctx context.Context, api kubernetes.Interface, namespace string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := api.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "probe", Labels: map[string]string{label: p.name},
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), p.says+", mutated: yes") {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
