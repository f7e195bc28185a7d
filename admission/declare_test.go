package admission_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
)

// Run reports all mistakes before it sends a request, with file and line and the name of the hook.
func TestMistakes(t *testing.T) {
	t.Parallel()
	good := admission.Options{Name: "pages", Namespace: "pages-system", Service: "hooks"}
	closed := admission.Rule{OnFailure: admission.FailClosed}
	pods := func(context.Context, *admission.Request[corev1.Pod]) error { return nil }
	podToMap := func(context.Context, *corev1.Pod) (*corev1.ConfigMap, error) { return nil, nil }
	mapToPod := func(context.Context, *corev1.ConfigMap) (*corev1.Pod, error) { return nil, nil }
	changed := func(fn func(*admission.Options)) admission.Options {
		o := good
		fn(&o)
		return o
	}
	type hooks = *admission.Hooks
	fine := func(h hooks) { admission.Validate(h, closed, hookbed.Allow) }
	ruled := func(r admission.Rule) func(hooks) { return func(h hooks) { admission.Validate(h, r, hookbed.Allow) } }
	for _, tc := range []struct {
		reason  string
		options admission.Options
		declare func(hooks)
		says    string
	}{
		{"no name", changed(func(o *admission.Options) { o.Name = "" }), fine, "Name"},
		{"no namespace", changed(func(o *admission.Options) { o.Namespace = "" }), fine, "Namespace"},
		{"no address", changed(func(o *admission.Options) { o.Service = "" }), fine, "Service or URL"},
		{
			"two addresses", changed(func(o *admission.Options) { o.URL = "https://x" }), fine, "Service or URL",
		},
		{
			"no TLS", changed(func(o *admission.Options) { o.Service, o.URL = "", "http://x" }), fine, "https://",
		},
		{"an invalid name", changed(func(o *admission.Options) { o.Service = "A b" }), fine, "A b"},
		{
			"an authority that ends before it signs",
			changed(func(o *admission.Options) { o.Certificates.Authority = time.Hour }), fine, "overlap",
		},
		{
			"a settle time that is too short", changed(func(o *admission.Options) { o.Certificates.Settle = time.Second }), fine,
			"the settle time is",
		},
		{
			"an overlap that is too short", changed(func(o *admission.Options) { o.Certificates.Overlap = time.Minute }), fine,
			"overlap",
		},
		{
			"a certificate that is too short", changed(func(o *admission.Options) { o.Certificates.Leaf = time.Minute }), fine,
			"six times",
		},
		{
			"an invalid selector", changed(func(o *admission.Options) {
				o.Only = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
			}), fine, "Only",
		},
		{"no hooks", good, func(hooks) {}, "no hooks"},
		{"no policy", good, ruled(admission.Rule{}), "validate.configmap.v1.core"},
		{"no domain", good, ruled(admission.Rule{OnFailure: admission.FailOpen, Name: "x"}), "three segments"},
		{
			"half a second", good, ruled(admission.Rule{OnFailure: admission.FailOpen, Timeout: time.Second / 2}),
			"500ms",
		},
		{
			"too patient", good, ruled(admission.Rule{OnFailure: admission.FailOpen, Timeout: time.Minute}),
			"1m0s",
		},
		{
			"another subresource", good, ruled(admission.Rule{OnFailure: admission.FailOpen, Subresource: "scale"}),
			"scale",
		},
		{
			"connect", good, ruled(admission.Rule{OnFailure: admission.FailOpen, Operations: []admission.Operation{"CONNECT"}}),
			"CONNECT",
		},
		{
			"reinvoked validation", good, ruled(admission.Rule{OnFailure: admission.FailOpen, Reinvoke: true}),
			"Reinvoke",
		},
		{
			"an object selector that selects nothing", good, ruled(admission.Rule{
				OnFailure: admission.FailOpen, Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}},
			}), "Objects",
		},
		{
			"no function", good, func(h hooks) { admission.Validate[corev1.Pod](h, closed, nil) }, "is nil",
		},
		{"no object", good, func(h hooks) {
			admission.Validate(h, closed, func(context.Context, *admission.Request[string]) error { return nil })
		}, "string is not an object"},
		{"an unknown type", good, func(h hooks) {
			admission.Validate(h, closed, func(context.Context, *admission.Request[hookbed.Page]) error { return nil })
		}, "hookbed.Page"},
		{"a changed deletion", good, func(h hooks) {
			r := closed
			r.Operations = []admission.Operation{admission.Delete}
			admission.Mutate(h, r, pods)
		}, "mutate.pod.v1.core"},
		{"one name twice", good, func(h hooks) {
			admission.Validate(h, closed, pods)
			admission.Validate(h, closed, pods)
		}, "validate.pod.v1.core"},
		{"one name for two types", good, func(h hooks) {
			r := closed
			r.Name = "one.example.com"
			admission.Validate(h, r, pods)
			admission.Mutate(h, r, hookbed.Allow)
		}, "one.example.com"},
		{
			"two kinds", good, func(h hooks) { admission.Convert(h, podToMap, mapToPod) }, "two versions of one kind",
		},
		{
			"no conversion", good, func(h hooks) { admission.Convert[corev1.Pod, corev1.Pod](h, nil, nil) },
			"is nil",
		},
	} {
		rt := fairlead.New(&rest.Config{Host: "127.0.0.1:1"})
		tc.declare(admission.Serve(rt, tc.options))
		err := rt.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), tc.says) ||
			!strings.Contains(err.Error(), "declare_test.go:") {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

func TestTwoOfOneName(t *testing.T) {
	t.Parallel()
	rt := fairlead.New(&rest.Config{Host: "127.0.0.1:1"})
	for range 2 {
		h := admission.Serve(rt, admission.Options{Name: "pages", Namespace: "pages-system", Service: "hooks"})
		admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed}, hookbed.Allow)
	}
	if err := rt.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `admission "pages"`) {
		t.Errorf("Run: %v", err)
	}
}

// A spoke needs one hub, and is declared once.
func TestMistakesOfConversions(t *testing.T) {
	t.Parallel()
	scheme, _ := hookbed.Pages("test.example.com")
	for _, tc := range []struct {
		reason  string
		declare func(*admission.Hooks)
		says    string
	}{
		{"twice", func(h *admission.Hooks) {
			admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
			admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
		}, "another hook has this name"},
		{"two hubs", func(h *admission.Hooks) {
			admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
			admission.Convert(h, hookbed.PageToMid, hookbed.MidToPage)
		}, "the declaration is invalid"},
	} {
		rt := fairlead.New(&rest.Config{Host: "127.0.0.1:1"}, fairlead.WithScheme(scheme))
		tc.declare(admission.Serve(rt, admission.Options{Name: "pages", Namespace: "pages-system", Service: "hooks"}))
		err := rt.Run(t.Context())
		var hook *admission.HookError
		if !errors.As(err, &hook) || hook.Kind.Kind != "Page" || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}
