package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
)

func TestEqualWritesAreNotSent(t *testing.T) {
	t.Parallel()
	labels := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		u.SetLabels(map[string]string{"l": "1"})
		return u
	}
	for _, tc := range []struct {
		reason string
		write  func(ctx context.Context, c *client.Client) error
		sent   int // requests of the second, equal write
	}{
		{"update", func(ctx context.Context, c *client.Client) error {
			u := labels(widget("w"))
			if err := c.Get(ctx, key("w"), u); err != nil {
				return err
			}
			return c.Update(ctx, u)
		}, 0},
		{"update, always", func(ctx context.Context, c *client.Client) error {
			u := widget("w")
			if err := c.Live().Get(ctx, key("w"), u); err != nil {
				return err
			}
			u.SetManagedFields([]metav1.ManagedFieldsEntry{
				{
					Manager: "m", Operation: "Update", APIVersion: "example.fairlead.io/v1", FieldsType: "FieldsV1",
					FieldsV1: metav1.NewFieldsV1("{}"),
				},
			})
			return c.Update(ctx, u, client.Always())
		}, 1},
		{"merge patch", func(ctx context.Context, c *client.Client) error {
			return c.Patch(ctx, widget("w"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":7}}`)))
		}, 0},
		{"json patch", func(ctx context.Context, c *client.Client) error {
			return c.Patch(ctx, widget("w"), client.RawPatch(types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/spec/size","value":8}]`)))
		}, 0},
		{"merge from", func(ctx context.Context, c *client.Client) error {
			u := widget("w")
			if err := c.Get(ctx, key("w"), u); err != nil {
				return err
			}
			base := u.DeepCopy()
			return c.Patch(ctx, labels(u), client.MergeFrom(base))
		}, 0},
		{"apply", func(ctx context.Context, c *client.Client) error { return c.Apply(ctx, labels(widget("w"))) }, 0},
		{"apply by another owner", func(ctx context.Context, c *client.Client) error {
			if err := c.Apply(ctx, labels(widget("w"))); err != nil {
				return err
			}
			return c.Apply(ctx, labels(widget("w")), client.Owner("other"), client.Always())
		}, 1},
		{"status update", func(ctx context.Context, c *client.Client) error {
			u := widget("w")
			if err := c.Get(ctx, key("w"), u); err != nil {
				return err
			}
			u.Object["status"] = map[string]any{"ready": true}
			return c.Status().Update(ctx, u)
		}, 0},
		{"status apply", func(ctx context.Context, c *client.Client) error {
			u := widget("w")
			delete(u.Object, "spec")
			u.Object["status"] = map[string]any{"ready": true}
			return c.Status().Apply(ctx, u)
		}, 0},
		{"modify", func(ctx context.Context, c *client.Client) error {
			return client.Modify(ctx, c, widget("w"), func(u *unstructured.Unstructured) error { labels(u); return nil })
		}, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"Widget"}})
				defer c.close()
				if err := c.client.Create(c.ctx, widget("w")); err != nil {
					t.Fatal(err)
				}
				if err := tc.write(c.ctx, c.client); err != nil {
					t.Fatal(err)
				}
				before := c.requests("update", "patch")
				if err := tc.write(c.ctx, c.client); err != nil {
					t.Fatal(err)
				}
				if n := c.requests("update", "patch") - before; n != tc.sent {
					t.Errorf("%d writes sent, want %d", n, tc.sent)
				}
			})
		})
	}
}

// An apply is sent again after a foreign change of the applied fields.
func TestApplyIsSentAgainAfterAForeignChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Widget"}})
		defer c.close()
		for want := 1; want <= 3; want++ {
			if err := c.client.Apply(c.ctx, widget("w"), client.Force()); err != nil {
				t.Fatal(err)
			}
			if n := c.requests("patch"); n != want {
				t.Fatalf("%d applies sent, want %d", n, want)
			}
			live, err := c.server.Object(apiserver.Widgets().GVR(), "a", "w")
			if err != nil {
				t.Fatal(err)
			}
			if want == 1 {
				live.Object["spec"] = map[string]any{"size": int64(9)}
				c.put(live)
			} else if err := c.server.Remove(apiserver.Widgets().GVR(), "a", "w"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
	})
}

// The cache drops managedFields, and the server keeps those of an object that is updated without any.
func TestUpdateOfACachedObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Widget"}})
		defer c.close()
		if err := c.client.Apply(c.ctx, widget("w")); err != nil { // from here on there are managedFields
			t.Fatal(err)
		}
		for n, reader := range map[int64]client.Reader{2: c.client, 3: c.client.Live()} {
			u := widget("w")
			if err := reader.Get(c.ctx, key("w"), u); err != nil {
				t.Fatal(err)
			}
			u.Object["spec"] = map[string]any{"size": n}
			if err := c.client.Update(c.ctx, u); err != nil {
				t.Error(err)
			}
			live, err := c.server.Object(apiserver.Widgets().GVR(), "a", "w")
			if size, _, _ := unstructured.NestedInt64(live.Object, "spec", "size"); err != nil || size != n ||
				len(live.GetManagedFields()) == 0 {
				t.Errorf("the server has %v, %v", live, err)
			}
		}
	})
}

// The client cannot know which fields the server uses at a subresource other than the status. It therefore always sends
// the update.
func TestUpdateOfAnotherSubresourceIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Pod"}})
		defer c.close()
		if err := c.client.Create(c.ctx, pod("one")); err != nil {
			t.Fatal(err)
		}
		var own corev1.Pod
		if err := c.client.Get(c.ctx, key("one"), &own); err != nil {
			t.Fatal(err)
		}
		own.Spec.EphemeralContainers = []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "shell"}},
		}
		before := c.requests("update")
		err := c.client.SubResource("ephemeralcontainers").Update(c.ctx, &own)
		if sent := c.requests("update") - before; sent != 1 {
			t.Errorf("%d requests were sent, and the response is %v", sent, err)
		}
	})
}

func TestIncompleteObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		unnamed, loose := configMap(""), configMap("web")
		loose.Namespace = ""
		kindless := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}}}
		for _, tc := range []struct {
			reason string
			err    error
			want   string
		}{
			{"no name", c.client.Create(c.ctx, unnamed), noName},
			{"no namespace", c.client.Create(c.ctx, loose), noName},
			{"no name to get", c.client.Get(c.ctx, client.Key{Namespace: "a"}, configMap("")), noName},
			{"no uid", c.client.Delete(c.ctx, configMap("web"), client.SameUID()), "the object has no uid"},
			{"no version to delete", c.client.Delete(c.ctx, configMap("web"), client.SameVersion()), noVersion},
			{"no version to update", c.client.Update(c.ctx, configMap("web"), client.SameVersion()), noVersion},
			{"no version to patch", c.client.Patch(c.ctx, configMap("web"),
				client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"b"}}`)), client.SameVersion()), noVersion},
			{"nothing to wait for", c.client.WaitForCache(c.ctx, configMap("web")), "not watched"},
		} {
			if !says(tc.err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, tc.err, tc.want)
			}
		}
		if err := c.client.Get(c.ctx, key("x"), kindless); err == nil {
			t.Error("an object without a kind was read")
		}
		if n := len(c.server.Log().Requests); n != 0 {
			t.Errorf("%d requests were sent, want none", n)
		}
		if err := c.client.Delete(c.ctx, configMap("web"), client.IgnoreNotFound()); err != nil {
			t.Errorf("got %v", err)
		}
		if err := c.client.Delete(c.ctx, configMap("web")); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	})
}

func TestFences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		if err := c.client.Create(c.ctx, configMap("web", "k", "v")); err != nil {
			t.Fatal(err)
		}
		lost := errors.New("leadership lost")
		var why error
		ctx := binding.With(binding.With(c.ctx, binding.Binding{Fence: func() error { return why }}),
			binding.Binding{RequireVersion: true})
		merge := client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"w"}}`))
		if err := c.client.Patch(ctx, configMap("web"), merge); err != nil {
			t.Fatal(err)
		}
		if body := lastBody(c, "patch"); !strings.Contains(body, `"resourceVersion"`) {
			t.Errorf("the patch carries no version: %s", body)
		}
		if err := c.client.Apply(ctx, configMap("web", "x", "y"), client.Force()); err != nil {
			t.Fatal(err)
		}
		if body := lastBody(c, "patch"); !strings.Contains(body, `"resourceVersion"`) {
			t.Errorf("the apply carries no version: %s", body)
		}
		merge = client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"x"}}`))
		if err := c.client.Patch(binding.With(ctx, binding.Binding{}), configMap("web"), merge); err != nil {
			t.Fatal(err)
		}
		if body := lastBody(c, "patch"); !strings.Contains(body, `"resourceVersion"`) {
			t.Errorf("the patch in an inner binding carries no version: %s", body)
		}
		if err := c.client.Update(ctx, configMap("unknown", "k", "v")); !says(err, noVersion) {
			t.Errorf("got %v, want a missing version", err)
		}
		why = lost
		before := len(c.server.Log().Requests)
		for op, err := range map[string]error{
			"create": c.client.Create(ctx, configMap("other")),
			"patch":  c.client.Patch(ctx, configMap("web"), client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"z"}}`))),
			"delete": c.client.Delete(ctx, configMap("web")), "live get": c.client.Live().Get(ctx, key("web"), configMap("")),
			"delete collection": c.client.DeleteCollection(ctx, configMap(""), client.Selection{Namespace: "a"}),
		} {
			if !errors.Is(err, client.ErrFenced) || !errors.Is(err, lost) {
				t.Errorf("%s: got %v, want a refusal", op, err)
			}
		}
		if n := len(c.server.Log().Requests) - before; n != 0 {
			t.Errorf("%d requests were sent behind the fence", n)
		}
		if err := c.client.Get(ctx, key("web"), configMap("")); err != nil {
			t.Errorf("the cache can still be read, but: %v", err)
		}
	})
}

// A preempted fiber sends no requests, not even with a context that outlives it.
func TestPreemptedFiberIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		if err := c.client.Create(c.ctx, configMap("web", "k", "v")); err != nil {
			t.Fatal(err)
		}
		e := flow.NewEngine(flow.EngineOptions{})
		running, late := make(chan struct{}), make(chan error, 1)
		type packet struct{}
		first := flow.New("first", flow.Step("write", flow.Do(func(ctx context.Context, _ *packet) error {
			var cm corev1.ConfigMap
			if err := client.Modify(ctx, c.client, configMap("web"),
				func(cm *corev1.ConfigMap) error { cm.Data["k"] = "first"; return nil }); err != nil {
				return err
			}
			close(running)
			<-ctx.Done()
			cm = *configMap("late")
			late <- c.client.Create(context.WithoutCancel(ctx), &cm)
			return nil
		})))
		if _, err := first.Start(c.ctx, e, new(packet), flow.StartOptions{Key: "a/web"}); err != nil {
			t.Fatal(err)
		}
		<-running
		second := flow.New("second", flow.Step("write", flow.Do(func(ctx context.Context, _ *packet) error {
			return client.Modify(ctx, c.client, configMap("web"),
				func(cm *corev1.ConfigMap) error { cm.Data["k"] = "second"; return nil })
		})))
		h, err := second.Start(c.ctx, e, new(packet), flow.StartOptions{Key: "a/web"})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(c.ctx); err != nil {
			t.Error(err)
		}
		if err := <-late; !errors.Is(err, client.ErrFenced) || !errors.Is(err, flow.ErrPreempted) {
			t.Errorf("the late write ended with %v", err)
		}
		cm, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
		if err != nil || cm.Data["k"] != "second" {
			t.Errorf("got %v, %v", cm, err)
		}
		if err := e.Close(c.ctx); err != nil {
			t.Error(err)
		}
	})
}

// The texts of errors without an error value.
const (
	noName    = "the object has no name or no namespace"
	noVersion = "the object has no resourceVersion"
)

func says(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
