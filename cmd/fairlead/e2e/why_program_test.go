package e2e_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	library "github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

// TestWhyOfProgramIsShown creates situations in which the objects of a user's program are stuck. The command and the
// page give the same correct first answer.
func TestWhyOfProgramIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	clients := kubernetes.NewForConfigOrDie(s.config).CoreV1()
	here := cache.Namespaces(s.namespace)
	rt := library.New(s.config, library.WithConsole(console.Options{InsecureNoAuth: true}))

	reconcile.Flow(rt, "bring-up", rt.Engine(), reconcile.Fibers[corev1.ConfigMap, corev1.ConfigMap]{
		Flow: flow.New("bring", flow.Step("wait", func(_ context.Context, f *flow.Fiber[corev1.ConfigMap]) flow.Next {
			c, _ := flow.Use[*client.Client](f)
			web := client.Key{Namespace: f.Packet.Namespace, Name: "web"}
			return f.Await(client.When(c, web, func(p *corev1.Pod) (bool, error) {
				return p != nil && p.Status.Phase == corev1.PodRunning, nil
			}))
		})),
		Changed: func(context.Context, *corev1.ConfigMap) bool { return true },
	}, reconcile.Primary(reconcile.From(here)), reconcile.WithoutEvents())

	begun, release := make(chan string, 10), make(chan struct{})
	reconcile.New(rt, "secrets", reconcile.Func[corev1.Secret](
		func(_ context.Context, m *corev1.Secret) (reconcile.Result, error) {
			begun <- m.Name
			<-release
			return reconcile.Done, nil
		}), reconcile.Primary(reconcile.From(here)), reconcile.Workers(1), reconcile.WithoutEvents())

	accounts := observe.Selector("accounts")
	seen := make(chan string, 10)
	observe.Source[corev1.ServiceAccount](rt, accounts, here)
	observe.On(rt, accounts, func(_ context.Context, e observe.Event[corev1.ServiceAccount]) error {
		if e.Key.Name == "default" {
			seen <- e.Key.Name
			<-release
		}
		return nil
	}, observe.Name("slow"))

	p := s.runs(rt, release)
	create := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	_, err := clients.Secrets(s.namespace).Create(s.ctx, &corev1.Secret{ObjectMeta: named("held")},
		metav1.CreateOptions{})
	create(err)
	<-begun
	_, err = clients.Secrets(s.namespace).Create(s.ctx, &corev1.Secret{ObjectMeta: named("queued")},
		metav1.CreateOptions{})
	create(err)
	_, err = clients.ServiceAccounts(s.namespace).Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: named("default")},
		metav1.CreateOptions{})
	create(err)
	<-seen
	_, err = clients.ServiceAccounts(s.namespace).Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: named("late")},
		metav1.CreateOptions{})
	create(err)
	pod, err := clients.Pods(s.namespace).Create(s.ctx, &corev1.Pod{
		ObjectMeta: named("web"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	create(err)
	pod.Status.Conditions = []corev1.PodCondition{{ // as the scheduler writes it
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/3 nodes are available", LastTransitionTime: metav1.Now(),
	}}
	_, err = clients.Pods(s.namespace).UpdateStatus(s.ctx, pod, metav1.UpdateOptions{})
	create(err)
	_, err = clients.ConfigMaps(s.namespace).Create(s.ctx, &corev1.ConfigMap{ObjectMeta: named("shop")},
		metav1.CreateOptions{})
	create(err)

	const unscheduled = "PodScheduled is False (Unschedulable): 0/3 nodes are available"
	p.shows(p.about("ConfigMap", "shop", "It waits for a Pod that cannot be scheduled.", "Parked", "web", unscheduled))
	p.shows(p.about("Pod", "web", "A Pod cannot be scheduled.", "Parked", unscheduled, "Check which node could run it"))
	p.shows(p.about("Secret", "queued", "All workers are blocked.", "QueuedBehind", "stack", "TestWhyOfProgramIsShown"))
	p.shows(p.about("Secret", "held", "The code of a worker does not return.", "Parked", "stack",
		"TestWhyOfProgramIsShown"))
	p.shows(p.about("ServiceAccount", "late", "An observer is behind.", "QueuedBehind", "observer slow is", "behind"))
	s.eventually("shown as behind", func() bool {
		return strings.Contains(plainText(p.visit("/console/sources")), "behind since")
	})
	s.eventually("shown as blocked", func() bool { // after a minute
		text := plainText(p.visit("/console/overview"))
		return strings.Contains(text, "controller secrets is blocked") && strings.Contains(text, "not healthy") &&
			!strings.Contains(text, "✓")
	})
	s.eventually("shown as blocked on its page", func() bool {
		return strings.Contains(plainText(p.visit("/console/controllers")), "✕ blocked")
	})
}

// about returns the expected answer about an object, on the page Why of that object.
func (p patient) about(kind, name, reason string, first ...string) shown {
	return shown{
		reason: reason, object: strings.ToLower(kind) + "/" + name, head: stuckHead, first: first,
		page: "/console/why?" + url.Values{"kind": {kind}, "namespace": {p.namespace}, "name": {name}}.Encode(),
	}
}

// runs runs a program until the test ends, and returns a patient that asks it. The code of the program returns when
// over is closed, which runs does at the end.
func (s *site) runs(rt *library.Runtime, over chan struct{}) patient {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	pages := httptest.NewServer(rt.Handler())
	s.t.Cleanup(func() {
		pages.CloseClientConnections()
		pages.Close()
		close(over)
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			s.t.Error(err)
		}
	})
	if err := rt.WaitSynced(ctx); err != nil {
		s.t.Fatal(err)
	}
	return patient{s, strings.TrimPrefix(pages.URL, "http://"), ""}
}
