package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/binding"
)

// Apply refuses an object that was read, however it was changed afterwards. It would take ownership of fields of users
// and other clients.
func TestApplyOfReadObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		c.seen(configMaps, c.put(foreign("web", "theirs", "1")))
		answered := configMap("answered", "ours", "1")
		if err := c.client.Apply(c.ctx, answered); err != nil {
			t.Fatal(err)
		}
		read := func(r client.Reader, name string) *corev1.ConfigMap {
			cm := configMap(name)
			if err := r.Get(c.ctx, key(name), cm); err != nil {
				t.Fatal(err)
			}
			return cm
		}
		metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		if err := c.client.Get(c.ctx, key("web"), metadata); err != nil {
			t.Fatal(err)
		}
		raw := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		if err := c.client.Get(c.ctx, key("web"), raw); err != nil {
			t.Fatal(err)
		}
		changed := func(change func(cm *corev1.ConfigMap)) *corev1.ConfigMap {
			cm := read(c.client.Live(), "answered")
			cm.ManagedFields = nil
			change(cm)
			return cm
		}
		before := c.requests("patch")
		for reason, obj := range map[string]client.Applicable{
			"of the cache":               read(c.client, "web"),
			"read live":                  read(c.client.Live(), "web"),
			"read live, that is applied": read(c.client.Live(), "answered"),
			"the answer to an apply":     answered,
			"a copy of one":              read(c.client, "web").DeepCopy(),
			"its metadata":               metadata,
			"unstructured":               raw,
			"without managedFields":      changed(func(*corev1.ConfigMap) {}),
			"without its version":        changed(func(cm *corev1.ConfigMap) { cm.ResourceVersion = "" }),
			"without version and uid":    changed(func(cm *corev1.ConfigMap) { cm.ResourceVersion, cm.UID = "", "" }),
			"without its time":           changed(func(cm *corev1.ConfigMap) { cm.CreationTimestamp = metav1.Time{} }),
			"a configuration made of it": corev1ac.ConfigMap("web", "a").WithCreationTimestamp(answered.CreationTimestamp),
		} {
			if err := c.client.Apply(c.ctx, obj, client.Force()); !errors.Is(err, client.ErrWasRead) ||
				!strings.Contains(err.Error(), "Modify") {
				t.Errorf("%s: got %v, want a refusal that recommends Modify", reason, err)
			}
			if err := c.client.Status().Apply(c.ctx, obj, client.Force()); !errors.Is(err, client.ErrWasRead) {
				t.Errorf("%s, its status: got %v, want a refusal", reason, err)
			}
		}
		if n := c.requests("patch") - before; n != 0 {
			t.Errorf("%d requests were sent", n)
		}
		live, err := c.server.Object(configMaps, "a", "answered")
		if err != nil {
			t.Fatal(err)
		}
		for reason, tc := range map[string]struct {
			change   func(cm *corev1.ConfigMap)
			conflict bool
		}{
			"its uid":     {func(cm *corev1.ConfigMap) { cm.UID = live.GetUID() }, false},
			"another uid": {func(cm *corev1.ConfigMap) { cm.UID = "other" }, true},
			"its version": {
				func(cm *corev1.ConfigMap) { cm.ResourceVersion = live.GetResourceVersion() },
				false,
			},
			"another version":         {func(cm *corev1.ConfigMap) { cm.ResourceVersion = "1" }, true},
			"only the applied fields": {func(*corev1.ConfigMap) {}, false},
		} {
			cm := configMap("answered", "ours", "1")
			tc.change(cm)
			err := c.client.Apply(c.ctx, cm)
			if tc.conflict != (apierrors.IsConflict(err) || apierrors.IsInvalid(err)) || !tc.conflict && err != nil {
				t.Errorf("a new object with %s: got %v", reason, err)
			}
		}
	})
}

// widgetConfiguration is a configuration as older generators made them. Its kind is not in the Scheme.
type widgetConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`
	Spec                                   map[string]any `json:"spec,omitempty"`
}

// GetName returns the name.
func (w *widgetConfiguration) GetName() *string { return w.Name }

func TestApplyOfConfigurations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap", "Pod", "Widget"}})
		defer c.close()
		c.server.HoldEvents(apiserver.Match{Verb: "watch"}) // reads come from the responses
		apply := func(reason string, sent int, fn func() error) {
			t.Helper()
			before := c.requests("patch")
			if err := fn(); err != nil {
				t.Errorf("%s: %v", reason, err)
			}
			if n := c.requests("patch") - before; n != sent {
				t.Errorf("%s: %d requests, want %d", reason, n, sent)
			}
		}
		shows := func(reason string, want map[string]string) {
			t.Helper()
			before := len(c.server.Log().Requests)
			cm, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
			if err != nil || len(cm.Data) != len(want) || cm.Data["a"] != want["a"] || cm.Data["b"] != want["b"] {
				t.Errorf("%s: the next read shows %v, %v", reason, cm, err)
			}
			if n := len(c.server.Log().Requests) - before; n != 0 {
				t.Errorf("%s: a read took %d requests", reason, n)
			}
		}
		both := corev1ac.ConfigMap("web", "a").WithData(map[string]string{"a": "1", "b": "2"})
		text, err := json.Marshal(both)
		if err != nil {
			t.Fatal(err)
		}
		apply("a dry run", 1, func() error { return c.client.Apply(c.ctx, both, client.DryRun()) })
		if _, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web")); !apierrors.IsNotFound(err) {
			t.Errorf("a dry run is read: %v", err)
		}
		apply("the first", 1, func() error { return c.client.Apply(c.ctx, both) })
		shows("the first", map[string]string{"a": "1", "b": "2"})
		apply("the same again", 0, func() error { return c.client.Apply(c.ctx, both) })
		apply("the same, always", 1, func() error { return c.client.Apply(c.ctx, both, client.Always()) })
		if after, err := json.Marshal(both); err != nil || string(after) != string(text) {
			t.Errorf("the configuration became %s, %v", after, err)
		}
		apply("without one of the fields", 1, func() error {
			return c.client.Apply(c.ctx, corev1ac.ConfigMap("web", "a").WithData(map[string]string{"a": "1"}))
		})
		shows("without one of the fields", map[string]string{"a": "1"})
		theirs := corev1ac.ConfigMap("web", "a").WithData(map[string]string{"a": "3"})
		if err := c.client.Apply(c.ctx, theirs, client.Owner("they")); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want a conflict with the other owner", err)
		}
		apply("by force", 1, func() error { return c.client.Apply(c.ctx, theirs, client.Owner("they"), client.Force()) })
		shows("by force", map[string]string{"a": "3"})
		if err := c.client.Apply(c.ctx, corev1ac.ConfigMap("web", "a").WithResourceVersion("1"),
			client.SameVersion()); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want a conflict with another version", err)
		}
		strict := binding.With(c.ctx, binding.Binding{RequireVersion: true})
		apply("in a fiber", 1, func() error {
			return c.client.Apply(strict, corev1ac.ConfigMap("web", "a").WithData(map[string]string{"b": "4"}))
		})
		if body := lastBody(c, "patch"); !strings.Contains(body, `"resourceVersion"`) {
			t.Errorf("the apply of a fiber carries no version: %s", body)
		}

		if err := c.client.Create(c.ctx, pod("one")); err != nil {
			t.Fatal(err)
		}
		apply("of a status", 1, func() error {
			return c.client.Status().Apply(c.ctx,
				corev1ac.Pod("one", "a").WithStatus(corev1ac.PodStatus().WithPhase(corev1.PodRunning)), client.Force())
		})
		if p, err := client.Get[corev1.Pod](c.ctx, c.client, key("one")); err != nil || p.Status.Phase != corev1.PodRunning ||
			len(p.Spec.Containers) != 1 {
			t.Errorf("the next read shows %v, %v", p, err)
		}

		mine := &widgetConfiguration{
			ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName("w").WithNamespace("a"),
			Spec:                         map[string]any{"size": 7},
		}
		mine.WithKind("Widget").WithAPIVersion(apiserver.Widgets().GVK().GroupVersion().String())
		apply("of a kind of one's own", 1, func() error { return c.client.Apply(c.ctx, mine) })
		w := widget("w")
		if err := c.client.Get(c.ctx, key("w"), w); err != nil {
			t.Error(err)
		}
		if size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size"); size != 7 {
			t.Errorf("the next read shows %v", w)
		}
	})
}

func TestApplyOfInvalidObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		for reason, tc := range map[string]struct {
			what client.Applicable
			want string
		}{
			"nothing": {nil, "cannot apply a <nil>"},
			"an object by value": {
				*configMap("web"),
				"cannot apply a v1.ConfigMap: it is neither a pointer to an object nor",
			},
			"a text":              {`{"kind":"ConfigMap"}`, "cannot apply a string"},
			"no constructor":      {&corev1ac.ConfigMapApplyConfiguration{}, "set its apiVersion and kind"},
			"a nil configuration": {(*corev1ac.ConfigMapApplyConfiguration)(nil), "set its apiVersion and kind"},
			"a part":              {metav1ac.ObjectMeta().WithName("web"), "set its apiVersion and kind"},
			"no name":             {corev1ac.ConfigMap("", "a"), "the object has no name or no namespace"},
			"no namespace":        {corev1ac.ConfigMap("web", ""), "the object has no name or no namespace"},
			"an unknown kind":     {corev1ac.ConfigMap("web", "a").WithKind("Nothing"), "Nothing"},
		} {
			for name, apply := range map[string]func(context.Context, client.Applicable, ...client.WriteOption) error{
				"whole": c.client.Apply, "status": c.client.Status().Apply,
			} {
				if err := apply(c.ctx, tc.what); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s, %s: got %v, want %q", reason, name, err, tc.want)
				}
			}
		}
		if n := len(c.server.Log().Requests); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}
