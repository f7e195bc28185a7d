package main

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an API server in this process, with a user and one operator.
type world struct {
	t    *testing.T
	ctx  context.Context
	user *client.Client
}

func start(t *testing.T, operator func(*rest.Config, ...fairlead.Option) (*fairlead.Runtime, error)) *world {
	t.Helper()
	server, err := apiserver.New(apiserver.Options{Resources: append(apiserver.DefaultResources(),
		apiserver.Resource{
			Group: kind.Group, Version: kind.Version, Resource: "webpages", Kind: kind.Kind, Namespaced: true,
			Subresources: []string{"status"},
		},
		apiserver.Resource{
			Group: "networking.k8s.io", Version: "v1", Resource: "ingresses", Kind: "Ingress", Namespaced: true,
		},
	)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	user, err := client.New(client.Options{Config: server.Config(), Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Close)
	rt, err := operator(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- rt.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		cancel()
	})
	return &world{t, ctx, user}
}

// await reads an object until ok is true of it; ok is given false if there is none.
func await[T any, PT client.ObjectOf[T]](w *world, name string, ok func(obj PT, exists bool) bool) PT {
	w.t.Helper()
	for {
		obj := PT(new(T))
		err := w.user.Get(w.ctx, client.Key{Namespace: "team-a", Name: name}, obj)
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Fatalf("cannot read %T %s: %v; it is %v", obj, name, err, obj)
		}
		if ok(obj, err == nil) {
			return obj
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-w.ctx.Done():
			w.t.Fatalf("%T %s is %v", obj, name, obj)
		}
	}
}

func exists[PT any](_ PT, exists bool) bool { return exists }
func gone[PT any](_ PT, exists bool) bool   { return !exists }

func says(status metav1.ConditionStatus, url string) func(p *WebPage, exists bool) bool {
	return func(p *WebPage, _ bool) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, "Ready")
		return c != nil && c.Status == status && c.ObservedGeneration == p.Generation && p.Status.URL == url
	}
}

// A page gets its children, one after the other, and its status tells how far they are.
func TestAPage(t *testing.T) {
	t.Parallel()
	for name, operator := range map[string]func(*rest.Config, ...fairlead.Option) (*fairlead.Runtime, error){
		"declared": newOperator, "by hand": newOperatorByHand,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, operator)
			page := &WebPage{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "hello"}, Spec: WebPageSpec{HTML: "<h1>Hello</h1>"},
			}
			if err := w.user.Create(w.ctx, page); err != nil {
				t.Fatal(err)
			}
			server := await[appsv1.Deployment](w, "hello", exists)
			await[WebPage](w, "hello", says("Unknown", ""))
			if svc := (&corev1.Service{}); w.user.Get(w.ctx, client.KeyOf(page), svc) == nil {
				t.Error("there is a service before the server is ready")
			}
			server.Status = appsv1.DeploymentStatus{ // as the Deployment controller does, which is not there
				ObservedGeneration: server.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
			}
			if err := w.user.Status().Update(w.ctx, server); err != nil {
				t.Fatal(err)
			}
			await[corev1.Service](w, "hello", exists)
			await[WebPage](w, "hello", says("True", ""))

			expose := func(yes bool) {
				if err := client.Modify(w.ctx, w.user, page,
					func(p *WebPage) error { p.Spec.Exposed = yes; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			expose(true)
			await[networkingv1.Ingress](w, "hello", exists)
			await[WebPage](w, "hello", says("True", "http://hello.team-a.example.com"))
			expose(false)
			await[networkingv1.Ingress](w, "hello", gone)
			await[WebPage](w, "hello", says("True", ""))

			if name == "declared" {
				if err := w.user.Delete(w.ctx, page); err != nil {
					t.Fatal(err)
				}
				await[WebPage](w, "hello", gone)
				await[corev1.ConfigMap](w, "hello", gone)
			}
		})
	}
}
