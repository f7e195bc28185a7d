package fairlead_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhyIsAsked: who was added with Explain is asked about the object by its real kind, whatever it was called.
func TestWhyIsAsked(t *testing.T) {
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
	cause := why.Cause{Type: "NoMoney", Message: "nobody has paid"}
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
		if diff := cmp.Diff(cause, a.Causes[0]); diff != "" || a.Causes[1].Type != why.NotLeading { // it was not run
			t.Errorf("%s: %s, -want +got:\n%s", kind, a.Causes[1].Type, diff)
		}
	}
}

// TestWhyOfNothing: what does not exist is told apart from what cannot be asked about.
func TestWhyOfNothing(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rt := fairlead.New(server.Config())
	if _, err := rt.Why(t.Context(), why.Object{Kind: "Pod", Namespace: "prod", Name: "web"}); !errors.Is(err,
		why.ErrNotFound) {
		t.Errorf("got %v, want that there is none", err)
	}
	for what, of := range map[string]why.Object{
		`no kind "Gizmo.example.com"`: {Kind: "Gizmo.example.com", Namespace: "prod", Name: "web"},
		"no kind \"Gizmo\"":           {Kind: "Gizmo", Name: "web"},
		"a name":                      {Kind: "Pod"},
		"is in a namespace":           {Kind: "Pod", Name: "web"},
	} {
		_, err := rt.Why(t.Context(), of)
		if err == nil || errors.Is(err, why.ErrNotFound) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v: got %v, want %q", of, err, what)
		}
	}
	if _, err := fairlead.New(nil).Why(t.Context(), why.Object{Kind: "Pod", Name: "web"}); err == nil {
		t.Error("a runtime that could not be made has an answer")
	}
	bad := fairlead.New(server.Config())
	bad.Explain(nil)
	if err := bad.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "explainer is nil") {
		t.Errorf("got %v, want the mistake", err)
	}
}
