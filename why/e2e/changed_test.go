package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/judge"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// TestDeselected: another client has removed the label that selected an object, or has deleted the object.
func TestDeselected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x", labeled("app", "web"))
	rt := fairlead.New(w.cfg)
	reconcile.New(rt, "maps", cleaner{fn: well}, here(w, cache.Labels("app=web")), reconcile.WithoutEvents())
	w.run(rt)
	w.expect(rt, "x", why.Ended, nil)
	w.change("x", func(m *configMap) { m.Labels["app"] = "paused" })
	w.expect(rt, "x", why.NotSelected, map[string]string{"selector": "app=web", "labels": "app=paused"})
	w.remove("x")
	a := w.expect(rt, "x", why.NotSelected, map[string]string{"selector": "app=web"})
	if len(a.Causes) != 1 {
		t.Errorf("%+v", a)
	}
}

// TestLeavingNamespace: the namespace is being deleted, so that no objects can be created in it.
func TestLeavingNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x", kept("example.com/router"))
	if err := w.kube.CoreV1().Namespaces().Delete(t.Context(), w.ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expect(w.creates(), "x", why.Forbidden, map[string]string{"refusedBy": "terminated", "verb": "create"})
}

// TestChildKept: the finalizer of another client keeps a child that must be deleted before its owner.
func TestChildKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := w.children()
	w.expect(rt, "x", why.Parked, map[string]string{"node": "deployment"})
	deployments := w.kube.AppsV1().Deployments(w.ns)
	d, err := deployments.Get(t.Context(), "x", metav1.GetOptions{})
	if err == nil {
		d.Finalizers = append(d.Finalizers, "example.com/drain")
		_, err = deployments.Update(t.Context(), d, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.remove("x")
	a := w.expect(rt, "x", why.Parked, map[string]string{"node": "deployment", "finalizers": "example.com/drain"})
	if len(a.Causes) < 2 || a.Causes[1].Type != why.ForeignFinalizer || a.Causes[1].About == nil ||
		a.Causes[1].About.Kind != "Deployment" {
		t.Errorf("the finalizer of the child is missing: %+v", a.Causes)
	}
}

// TestChildOfChild: a child of a child makes no progress.
func TestChildOfChild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := fairlead.New(w.cfg)
	g := dependent.For[configMap]()
	dependent.Add(g, "deployment", func(_ context.Context, m *configMap) (*appsv1.Deployment, error) {
		return web(m), nil
	},
		dependent.Watch(reconcile.From(cache.Namespaces(w.ns))), dependent.Ready(dependent.IsReady[appsv1.Deployment]))
	g.Controller(rt, "maps", here(w), reconcile.WithoutEvents())
	type deployments = reconcile.Func[appsv1.Deployment]
	reconcile.New(rt, "deployments", deployments(func(context.Context, *appsv1.Deployment) (reconcile.Result, error) {
		return reconcile.Retry(errors.New("no node is left"))
	}), reconcile.Primary(reconcile.From(cache.Namespaces(w.ns))), reconcile.WithoutEvents())
	w.run(rt)
	w.judge(rt, "x", judge.Case{Want: why.Parked, Evidence: []string{"child=x"}, Then: []why.Type{why.BackOff}})
}

// TestUnauthorized: the API server rejects the credentials of the program.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	expired := make(chan struct{})
	w.cfg = disturb.Config(w.cfg, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		select {
		case <-expired:
			return status(r, http.StatusUnauthorized, "Unauthorized", "Unauthorized"), nil
		default:
			return next.RoundTrip(r)
		}
	})
	rt := w.program(well)
	w.expect(rt, "x", why.Ended, nil)
	close(expired)
	c := w.expect(rt, "x", why.SourceStale, map[string]string{"error": "Unauthorized"}).Causes[0]
	if strings.Contains(c.Message, "does not answer") || !strings.Contains(c.Advice, "token") {
		t.Errorf("%+v", c)
	}
}

// TestNotRun: a program that was not started.
func TestNotRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	rt := fairlead.New(w.cfg)
	defer rt.Client().Close()
	reconcile.New(rt, "maps", well, here(w), reconcile.WithoutEvents())
	if c := w.expect(rt, "x", why.NotLeading, nil).Causes[0]; c.Advice == "" {
		t.Errorf("%+v", c)
	}
}
