package fairlead_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/why"
)

// TestExplainGetsTheRealKind: an explainer added with Explain gets the object with its real kind, whatever name the
// question uses.
func TestExplainGetsTheRealKind(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rt := fairlead.New(server.Config())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}}
	if err := rt.Client().Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	of := why.Object{Kind: "Pod", Namespace: "prod", Name: "web"}
	var asked []why.Object
	cause := why.Cause{Type: "NoMoney", Message: "the bill is unpaid"}
	rt.Explain(why.Func(func(context.Context, why.Object) []why.Cause { panic("of an explainer") }))
	rt.Explain(why.Func(func(_ context.Context, of why.Object) []why.Cause {
		asked = append(asked, of)
		return []why.Cause{cause}
	}))
	for _, kind := range []string{"Pod", "pod", "pods", "PODS"} {
		asked = nil
		a, err := rt.Why(t.Context(), why.Object{Kind: kind, Namespace: "prod", Name: "web"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]why.Object{of}, asked); diff != "" {
			t.Errorf("%s: -want +got:\n%s", kind, diff)
		}
		if len(a.Causes) != 2 || a.Kind != "Pod" || a.Namespace != "prod" || a.Name != "web" || !a.Stuck {
			t.Fatalf("%s: %+v", kind, a)
		}
		if diff := cmp.Diff(cause, a.Causes[0]); diff != "" || a.Causes[1].Type != why.NotLeading { // the runtime has not run
			t.Errorf("%s: %s, -want +got:\n%s", kind, a.Causes[1].Type, diff)
		}
	}
}

// TestWhyOfAbsentAndInvalidObjects: an absent object and an invalid question have different errors.
func TestWhyOfAbsentAndInvalidObjects(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rt := fairlead.New(server.Config())
	if _, err := rt.Why(t.Context(), why.Object{Kind: "Pod", Namespace: "prod", Name: "web"}); !errors.Is(err,
		why.ErrNotFound) {
		t.Errorf("got %v, want a missing object", err)
	}
	for what, of := range map[string]why.Object{
		`no kind "Gizmo.example.com"`: {Kind: "Gizmo.example.com", Namespace: "prod", Name: "web"},
		"no kind \"Gizmo\"":           {Kind: "Gizmo", Name: "web"},
		"a name":                      {Kind: "Pod"},
		"is namespaced":               {Kind: "Pod", Name: "web"},
	} {
		_, err := rt.Why(t.Context(), of)
		if err == nil || errors.Is(err, why.ErrNotFound) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v: got %v, want %q", of, err, what)
		}
	}
	if _, err := fairlead.New(nil).Why(t.Context(), why.Object{Kind: "Pod", Name: "web"}); err == nil {
		t.Error("a runtime of a failed New has an answer")
	}
	bad := fairlead.New(server.Config())
	bad.Explain(nil)
	if err := bad.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot add an explainer") {
		t.Errorf("got %v, want the invalid explainer", err)
	}
}

// TestWhyQuotesConditions: the answer quotes conditions of known kinds, of the object itself and of an object that it
// waits for.
func TestWhyQuotesConditions(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rt := fairlead.New(server.Config())
	rt.Explain(why.Func(func(_ context.Context, of why.Object) []why.Cause {
		if of.Kind != "ConfigMap" {
			return nil
		}
		return []why.Cause{{
			Type: why.Parked, Message: "waits for its pod", About: &why.Object{Kind: "Pod", Namespace: "prod", Name: of.Name},
		}}
	}))
	long, now := metav1.NewTime(time.Now().Add(-time.Hour)), metav1.Now()
	for name, tc := range map[string]struct {
		reason     string
		conditions []corev1.PodCondition
		want       []string // "condition reason" of each cause, with "+" if it is progress
	}{
		"unscheduled": {
			reason: "No node takes the pod: a problem from the start.", want: []string{"PodScheduled Unschedulable"},
			conditions: []corev1.PodCondition{
				{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", LastTransitionTime: now, Message: "0/1 nodes"},
			},
		},
		"starting": {
			reason: "Every pod is unready at first.", want: []string{"Ready ContainersNotReady +"},
			conditions: []corev1.PodCondition{
				{Type: "PodScheduled", Status: "True", LastTransitionTime: now},
				{Type: "Ready", Status: "False", Reason: "ContainersNotReady", LastTransitionTime: now},
			},
		},
		"crashing": {
			reason: "But not for an hour.", want: []string{"ContainersReady ContainersNotReady", "Ready ContainersNotReady"},
			conditions: []corev1.PodCondition{
				{Type: "Ready", Status: "False", Reason: "ContainersNotReady", LastTransitionTime: long},
				{Type: "ContainersReady", Status: "False", Reason: "ContainersNotReady", LastTransitionTime: long},
			},
		},
		"completed": {
			reason: "A completed pod is unready, too.",
			conditions: []corev1.PodCondition{
				{Type: "Ready", Status: "False", Reason: "PodCompleted", LastTransitionTime: long},
			},
		},
		"well": {
			reason:     "A False condition of an unknown type is no cause.",
			conditions: []corev1.PodCondition{{Type: "example.com/Bad", Status: "False", LastTransitionTime: long}},
		},
	} {
		for _, object := range []runtime.Object{
			&corev1.Pod{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Status: corev1.PodStatus{Conditions: tc.conditions},
				ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name},
			},
			&corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name},
			},
		} {
			if _, err := server.Put(object); err != nil {
				t.Fatal(err)
			}
			kind := object.GetObjectKind().GroupVersionKind().Kind
			a, err := rt.Why(t.Context(), why.Object{Kind: kind, Namespace: "prod", Name: name})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range a.Causes {
				if c.Evidence["condition"] == "" {
					continue
				}
				text := c.Evidence["condition"] + " " + c.Evidence["reason"]
				if c.Progress {
					text += " +"
				}
				if got = append(got, text); (c.Depth == 1) != (kind == "ConfigMap") {
					t.Errorf("%s of %s: depth %d", text, kind, c.Depth)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (%s) -want +got:\n%s", tc.reason, kind, diff)
			}
		}
	}
}

// TestWhyObserverIsBehind: an observer that has been blocked for a while is a cause for later objects, until it has
// caught up. This also holds for observers of filtered and joined sources.
func TestWhyObserverIsBehind(t *testing.T) {
	t.Parallel()
	some := observe.Selector("some maps")
	for name, tc := range map[string]struct {
		declare func(rt *fairlead.Runtime)
		from    observe.Selector
	}{
		"source": {func(*fairlead.Runtime) {}, Maps},
		"filter": {func(rt *fairlead.Runtime) {
			observe.Filter(rt, some, Maps, func(m *corev1.ConfigMap) bool { return m.Namespace == "a" })
		}, some},
		"join": {func(rt *fairlead.Runtime) { observe.Join[corev1.ConfigMap](rt, some, Maps) }, some},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whileBehind(t, tc.declare, tc.from)
		})
	}
}

func whileBehind(t *testing.T, declare func(rt *fairlead.Runtime), from observe.Selector) {
	t.Helper()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		release := make(chan struct{})
		observe.Source[corev1.ConfigMap](rt, Maps)
		declare(rt)
		observe.On(rt, from, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Key.Name == "slow" {
				<-release
			}
			return nil
		}, observe.Name("mine"))
		r := run(rt)
		synctest.Wait()
		first := func() why.Cause {
			t.Helper()
			a, err := rt.Why(t.Context(), why.Object{Kind: "ConfigMap", Namespace: "a", Name: "other"})
			if err != nil || len(a.Causes) == 0 {
				t.Fatalf("%+v %v", a, err)
			}
			return a.Causes[0]
		}
		put(t, s, "slow")
		synctest.Wait()
		put(t, s, "other")
		synctest.Wait()
		if c := first(); c.Type != why.Ended {
			t.Errorf("behind after a moment: %+v", c)
		}
		time.Sleep(45 * time.Second)
		if c := first(); c.Type != why.QueuedBehind || c.Evidence["observer"] != "mine" || c.Evidence["behind"] != "45s" ||
			c.Evidence["lag"] != "1" {
			t.Errorf("behind: %+v", c)
		}
		close(release)
		synctest.Wait()
		if c := first(); c.Type != why.Ended {
			t.Errorf("all events are handled: %+v", c)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}
