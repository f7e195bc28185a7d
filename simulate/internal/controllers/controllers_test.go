package controllers_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/simulate/internal/controllers"
	"github.com/fairlead-io/fairlead/simulate/internal/controllers/controllerstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bubble(t *testing.T, delay time.Duration, test func(t *testing.T, m *controllerstest.Model)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, controllerstest.Start(t, always(delay))) })
}

func always(d time.Duration) func(string) time.Duration {
	return func(string) time.Duration { return d }
}

func replicaSet(n int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v1"}}},
			},
		},
	}
}

func createReplicaSet(t *testing.T, m *controllerstest.Model, n int32) {
	t.Helper()
	_, err := m.Client.AppsV1().ReplicaSets("default").Create(t.Context(), replicaSet(n), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// writes returns the requests that are not gets, in order.
func writes(m *controllerstest.Model) (all []string) {
	for _, r := range m.Log().Select(apiserver.Match{}) {
		if r.Method != http.MethodGet {
			all = append(all, strings.TrimSpace(fmt.Sprint(r.Verb, " ", r.Resource, " ", r.Subresource)))
		}
	}
	return all
}

// A cluster in which nothing happens costs no request.
func TestQuietCluster(t *testing.T) {
	bubble(t, time.Millisecond, func(t *testing.T, m *controllerstest.Model) {
		<-time.After(time.Hour)
		if n := len(m.Log().Requests); n > 0 || !m.Controllers.Idle() {
			t.Errorf("there are %d requests: %q", n, writes(m))
		}
	})
}

// No write comes before its delay, and a cluster without work is idle.
func TestDelay(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, m *controllerstest.Model) {
		m.Settle()
		createReplicaSet(t, m, 1)
		if synctest.Wait(); m.Controllers.Idle() {
			t.Error("it is idle before the first write")
		}
		before := len(writes(m))
		<-time.After(time.Second - time.Nanosecond)
		if synctest.Wait(); len(writes(m)) != before {
			t.Errorf("the writes are early: %q", writes(m))
		}
		<-time.After(time.Nanosecond)
		if synctest.Wait(); len(writes(m)) != before+1 {
			t.Errorf("the first write does not come: %q", writes(m))
		}
		m.Settle()
	})
}

// The same course leads to the same writes in the same order.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	var first []string
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			m := controllerstest.Start(t, nil)
			createReplicaSet(t, m, 5)
			m.Settle()
			if first == nil {
				first = writes(m)
			}
			if got := writes(m); fmt.Sprint(got) != fmt.Sprint(first) {
				t.Errorf("the writes are %q, want %q", got, first)
			}
		})
	}
}

// A failed write is tried again, and its failure is shown until it is made good.
func TestFailureIsShownAndRetried(t *testing.T) {
	bubble(t, time.Millisecond, func(t *testing.T, m *controllerstest.Model) {
		refused := m.On(apiserver.Match{Verb: "create", Resource: "pods"}, apiserver.Answer(apiserver.Failure(500)))
		createReplicaSet(t, m, 2)
		<-time.After(time.Second)
		conditions := func() []appsv1.ReplicaSetCondition {
			rs, err := m.Client.AppsV1().ReplicaSets("default").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return rs.Status.Conditions
		}
		if c := conditions(); len(c) != 1 || c[0].Type != appsv1.ReplicaSetReplicaFailure || c[0].Reason != "FailedCreate" {
			t.Errorf("the conditions are %+v", c)
		}
		tries := m.Log().Count(apiserver.Match{Verb: "create", Resource: "pods"})
		if tries < 5 || tries > 10 { // 5ms, 10ms, … in a second
			t.Errorf("it was tried %d times", tries)
		}
		if m.Controllers.Idle() {
			t.Error("it is idle although the next try comes soon")
		}
		<-time.After(3 * time.Minute)
		if synctest.Wait(); !m.Controllers.Idle() {
			t.Error("it is not idle although the next try comes late")
		}
		refused.Off()
		<-time.After(4 * time.Minute)
		m.Settle()
		if c := conditions(); len(c) != 0 {
			t.Errorf("the conditions are %+v", c)
		}
	})
}

// A conflict is tried again, without a trace.
func TestConflictIsRetried(t *testing.T) {
	bubble(t, time.Millisecond, func(t *testing.T, m *controllerstest.Model) {
		m.On(apiserver.Match{Verb: "update", Resource: "replicasets", Subresource: "status", Times: 1},
			apiserver.Answer(apiserver.Failure(409)))
		createReplicaSet(t, m, 1)
		m.Settle()
		rs, err := m.Client.AppsV1().ReplicaSets("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || rs.Status.ReadyReplicas != 1 || len(rs.Status.Conditions) != 0 {
			t.Errorf("%+v, %v", rs.Status, err)
		}
	})
}

func widget(namespace, name, finalizer string, owners ...map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.fairlead.io/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": namespace, "name": name},
	}}
	if finalizer != "" {
		u.SetFinalizers([]string{finalizer})
	}
	refs := []any{}
	for _, o := range owners {
		refs = append(refs, o)
	}
	if len(refs) > 0 {
		u.Object["metadata"].(map[string]any)["ownerReferences"] = refs
	}
	return u
}

func ownedBy(u *unstructured.Unstructured) map[string]any {
	return map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "name": u.GetName(), "uid": string(u.GetUID()),
		"blockOwnerDeletion": true,
	}
}

var widgets = schema.GroupVersionResource{Group: "example.fairlead.io", Version: "v1", Resource: "widgets"}

func put(t *testing.T, m *controllerstest.Model, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	u, err := m.Put(u)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func exists(t *testing.T, m *controllerstest.Model, namespace, name string) bool {
	t.Helper()
	_, err := m.Object(widgets, namespace, name)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// A custom resource is an owner like any other, in its own namespace only.
func TestGarbageOfCustomResources(t *testing.T) {
	bubble(t, time.Millisecond, func(t *testing.T, m *controllerstest.Model) {
		owner := put(t, m, widget("a", "owner", ""))
		put(t, m, widget("a", "owned", "", ownedBy(owner)))
		put(t, m, widget("b", "stranger", "", ownedBy(owner)))
		m.Settle()
		if !exists(t, m, "a", "owned") || exists(t, m, "b", "stranger") {
			t.Error("only the object in another namespace should be gone")
		}
		if err := m.Delete(t.Context(), widgets, "a", "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		m.Settle()
		if exists(t, m, "a", "owned") {
			t.Error("the owned object is not collected")
		}
	})
}

// Two objects that own each other do not wait for each other for ever.
func TestGarbageOfACircle(t *testing.T) {
	bubble(t, time.Millisecond, func(t *testing.T, m *controllerstest.Model) {
		one := put(t, m, widget("a", "one", ""))
		two := put(t, m, widget("a", "two", "", ownedBy(one)))
		put(t, m, widget("a", "one", "", ownedBy(two)))
		foreground := metav1.DeletePropagationForeground
		opts := metav1.DeleteOptions{PropagationPolicy: &foreground}
		if err := m.Delete(t.Context(), widgets, "a", "one", opts); err != nil {
			t.Fatal(err)
		}
		m.Settle()
		if exists(t, m, "a", "one") || exists(t, m, "a", "two") {
			t.Error("the circle is not collected")
		}
	})
}

// An owner of a kind that is not served may exist. It is looked for once, until a kind is added.
func TestOwnerOfAnUnknownKind(t *testing.T) {
	bubble(t, time.Millisecond, func(t *testing.T, m *controllerstest.Model) {
		owner := widget("a", "owner", "")
		owner.SetAPIVersion("late.example.com/v1")
		owner.SetUID("1")
		put(t, m, widget("a", "owned", "", ownedBy(owner)))
		m.Settle()
		put(t, m, widget("a", "owned", "example.com/hold", ownedBy(owner)))
		m.Settle()
		asked := func() int { return m.Log().Count(apiserver.Match{Verb: "get"}) }
		if n := asked(); !exists(t, m, "a", "owned") || n != 1 {
			t.Errorf("the object is collected, or the kind was asked for %d times", n)
		}
		late := apiserver.Resource{
			Group: "late.example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true,
		}
		m.Register(late)
		put(t, m, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "widgets.late.example.com"},
		}})
		m.Settle()
		u, err := m.Object(widgets, "a", "owned")
		if err != nil || u.GetDeletionTimestamp() == nil || asked() != 2 {
			t.Errorf("the object is not collected: %v, %v", u, err)
		}
	})
}

// Everything in a namespace is deleted, also objects of kinds that the package does not know.
func TestNamespaceWithCustomResources(t *testing.T) {
	bubble(t, time.Millisecond, func(t *testing.T, m *controllerstest.Model) {
		put(t, m, widget("default", "kept", "example.com/hold"))
		if err := m.Client.CoreV1().Namespaces().Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		m.Settle()
		ns, err := m.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil || !strings.Contains(fmt.Sprint(ns.Status.Conditions), "example.com/hold in 1 resource instances") {
			t.Errorf("%+v, %v", ns, err)
		}
		if err := m.Remove(widgets, "default", "kept"); err != nil {
			t.Fatal(err)
		}
		m.Settle()
		ns, err = m.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the namespace remains: %+v, %v", ns, err)
		}
	})
}

// Changes before Run are not lost.
func TestChangesBeforeRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all *controllers.Controllers
		s, err := apiserver.New(apiserver.Options{Pipe: true, OnChange: func(c apiserver.Change) { all.OnChange(c) }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		all = controllers.New(controllers.Options{Config: s.Config()})
		if !all.Idle() {
			t.Error("it is not idle without changes")
		}
		if _, err := s.Put(replicaSet(1)); err != nil {
			t.Fatal(err)
		}
		if all.Idle() {
			t.Error("it is idle with a change")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- all.Run(ctx) }()
		synctest.Wait()
		list, err := s.Objects(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
		if err != nil || len(list) != 1 {
			t.Errorf("there are %d pods, %v", len(list), err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkStartStop(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	for b.Loop() {
		c := controllers.New(controllers.Options{Config: &rest.Config{Host: "http://none"}})
		if err := c.Run(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// A cluster, a ReplicaSet with three pods, and the end of both.
func BenchmarkReplicaSet(b *testing.B) {
	for b.Loop() {
		ready := make(chan struct{}, 1)
		var all *controllers.Controllers
		s, err := apiserver.New(apiserver.Options{Pipe: true, OnChange: func(c apiserver.Change) {
			all.OnChange(c)
			if c.New == nil || c.New.GetKind() != "ReplicaSet" {
				return
			}
			if n, _, _ := unstructured.NestedInt64(c.New.Object, "status", "readyReplicas"); n == 3 {
				select {
				case ready <- struct{}{}:
				default:
				}
			}
		}})
		if err != nil {
			b.Fatal(err)
		}
		all = controllers.New(controllers.Options{Config: s.Config()})
		if _, err := s.Put(replicaSet(3)); err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- all.Run(ctx) }()
		<-ready
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
