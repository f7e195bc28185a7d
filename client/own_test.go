package client_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// readers returns all ways to read pods. Each returns "label/phase" by name, with a "-" for objects that are being
// deleted.
func readers(c *client.Client) map[string]func(ctx context.Context, name string) (map[string]string, error) {
	word := func(label string, phase corev1.PodPhase, deleting bool) string {
		s := label + "/" + string(phase)
		if deleting {
			s += "-"
		}
		return s
	}
	of := func(p *corev1.Pod) string {
		return word(p.Labels["l"], p.Status.Phase, p.DeletionTimestamp != nil)
	}
	one := func(name, s string, err error) (map[string]string, error) {
		if apierrors.IsNotFound(err) {
			return map[string]string{}, nil
		}
		return map[string]string{name: s}, err
	}
	return map[string]func(ctx context.Context, name string) (map[string]string, error){
		"get": func(ctx context.Context, name string) (map[string]string, error) {
			var p corev1.Pod
			err := c.Get(ctx, key(name), &p)
			return one(name, of(&p), err)
		},
		"shared get": func(ctx context.Context, name string) (map[string]string, error) {
			p, err := client.Get[corev1.Pod](ctx, c, key(name))
			if err != nil {
				return one(name, "", err)
			}
			return one(name, of(p), nil)
		},
		"unstructured": func(ctx context.Context, name string) (map[string]string, error) {
			u := &unstructured.Unstructured{}
			u.SetAPIVersion("v1")
			u.SetKind("Pod")
			err := c.Get(ctx, key(name), u)
			phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
			return one(name, word(u.GetLabels()["l"], corev1.PodPhase(phase), u.GetDeletionTimestamp() != nil), err)
		},
		"list": func(ctx context.Context, _ string) (map[string]string, error) {
			var l corev1.PodList
			err := c.List(ctx, &l, client.InNamespace("a"))
			out := map[string]string{}
			for _, p := range l.Items {
				out[p.Name] = of(&p)
			}
			return out, err
		},
		"shared list": func(ctx context.Context, _ string) (map[string]string, error) {
			out := map[string]string{}
			for p, err := range client.List[corev1.Pod](ctx, c, client.Labels("!absent")) {
				if err != nil {
					return nil, err
				}
				out[p.Name] = of(p)
			}
			return out, nil
		},
	}
}

// C1 and C2: every way to read shows the writes of this client, whatever the watch has delivered.
func TestOwnWritesAreRead(t *testing.T) {
	t.Parallel()
	label := func(p *corev1.Pod, v string) *corev1.Pod { p.Labels = map[string]string{"l": v}; return p }
	apply := func(p *corev1.Pod) *corev1.Pod { p.Labels = map[string]string{"l": "applied"}; return p }
	for _, tc := range []struct {
		reason string
		write  func(ctx context.Context, c *client.Client, p *corev1.Pod) error
		want   map[string]string
	}{
		{"create", func(ctx context.Context, c *client.Client, _ *corev1.Pod) error {
			return c.Create(ctx, label(pod("two"), "new"))
		}, map[string]string{"one": "old/Pending", "two": "new/Pending"}},
		{"generated name", func(ctx context.Context, c *client.Client, _ *corev1.Pod) error {
			p := pod("")
			p.GenerateName = "gen-"
			if err := c.Create(ctx, p); err != nil {
				return err
			}
			return c.Delete(ctx, p, client.Grace(0))
		}, map[string]string{"one": "old/Pending"}},
		{"update", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			if err := c.Live().Get(ctx, key("one"), p); err != nil {
				return err
			}
			p.ManagedFields = []metav1.ManagedFieldsEntry{
				{
					Manager: "x", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
					FieldsV1: metav1.NewFieldsV1(`{}`),
				},
			}
			return c.Update(ctx, label(p, "new"))
		}, map[string]string{"one": "new/Pending"}},
		{"patch", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return c.Patch(ctx, p, client.RawPatch(types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"l":"new"}}}`)))
		}, map[string]string{"one": "new/Pending"}},
		{"merge from", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			base := p.DeepCopy()
			return c.Patch(ctx, label(p, "new"), client.MergeFrom(base))
		}, map[string]string{"one": "new/Pending"}},
		{"json patch", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return c.Patch(ctx, p, client.RawPatch(types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/metadata/labels/l","value":"new"}]`)))
		}, map[string]string{"one": "new/Pending"}},
		{"apply", func(ctx context.Context, c *client.Client, _ *corev1.Pod) error {
			return c.Apply(ctx, apply(pod("one")), client.Force())
		}, map[string]string{"one": "applied/Pending"}},
		{"modify", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return client.Modify(ctx, c, p, func(p *corev1.Pod) error { label(p, "new"); return nil })
		}, map[string]string{"one": "new/Pending"}},
		{"status update", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			p.Status.Phase = corev1.PodRunning
			return c.Status().Update(ctx, p)
		}, map[string]string{"one": "old/Running"}},
		{"status patch", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return c.Status().Patch(ctx, p, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`)))
		}, map[string]string{"one": "old/Running"}},
		{"status apply", func(ctx context.Context, c *client.Client, _ *corev1.Pod) error {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one"},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning},
			}
			return c.Status().Apply(ctx, p, client.Force())
		}, map[string]string{"one": "old/Running"}},
		{"status modify", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return client.ModifyStatus(ctx, c, p, func(p *corev1.Pod) error { p.Status.Phase = corev1.PodRunning; return nil })
		}, map[string]string{"one": "old/Running"}},
		{"delete", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return c.Delete(ctx, p, client.Grace(0), client.SameUID())
		}, map[string]string{}},
		{"delete of a new object", func(ctx context.Context, c *client.Client, _ *corev1.Pod) error {
			if err := c.Create(ctx, pod("two")); err != nil {
				return err
			}
			return c.Delete(ctx, pod("two"), client.Grace(0))
		}, map[string]string{"one": "old/Pending"}},
		{"delete and create again", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			if err := c.Delete(ctx, p, client.Grace(0)); err != nil {
				return err
			}
			return c.Create(ctx, label(pod("one"), "again"))
		}, map[string]string{"one": "again/Pending"}},
		{"delete with a finalizer", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			if err := client.Modify(ctx, c, p, func(p *corev1.Pod) error {
				p.Finalizers = []string{"x/y"}
				return nil
			}); err != nil {
				return err
			}
			return c.Delete(ctx, p)
		}, map[string]string{"one": "old/Pending-"}},
		{"the last finalizer of a deleted object", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			if err := client.Modify(ctx, c, p, func(p *corev1.Pod) error {
				p.Finalizers = []string{"x/y"}
				return nil
			}); err != nil {
				return err
			}
			if err := c.Delete(ctx, p, client.Grace(0)); err != nil {
				return err
			}
			return client.Modify(ctx, c, p, func(p *corev1.Pod) error { p.Finalizers = nil; return nil })
		}, map[string]string{}},
		{"delete collection", func(ctx context.Context, c *client.Client, _ *corev1.Pod) error {
			if err := c.Create(ctx, label(pod("two"), "kept")); err != nil {
				return err
			}
			return c.DeleteCollection(ctx, &corev1.Pod{}, client.Selection{Namespace: "a", Labels: "l=old"}, client.Grace(0))
		}, map[string]string{"two": "kept/Pending"}},
		{"a dry run shows nothing", func(ctx context.Context, c *client.Client, p *corev1.Pod) error {
			return c.Create(ctx, pod("two"), client.DryRun())
		}, map[string]string{"one": "old/Pending"}},
		{"the response was lost", func(ctx context.Context, c *client.Client, _ *corev1.Pod) error {
			return c.Create(ctx, label(pod("lost"), "new"))
		}, map[string]string{"one": "old/Pending", "lost": "new/Pending"}},
	} {
		for _, held := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, watch held %v", tc.reason, held), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := start(t.Context(), t, setup{watch: []string{"Pod"}})
					defer c.close()
					old := label(pod("one"), "old")
					if err := c.client.Create(c.ctx, old); err != nil {
						t.Fatal(err)
					}
					live, err := c.server.Object(pods, "a", "one")
					if err != nil {
						t.Fatal(err)
					}
					c.seen(pods, live)
					if tc.reason == "the answer was lost" {
						c.server.On(apiserver.Match{Verb: "create", Times: 1}, apiserver.DropAfter())
					}
					if held {
						hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
						defer hold.Release()
					}
					if err := tc.write(c.ctx, c.client, old.DeepCopy()); err != nil {
						t.Fatal(err)
					}
					if !held {
						synctest.Wait()
					}
					before := c.requests("get", "list")
					rs := readers(c.client)
					for _, how := range slices.Sorted(maps.Keys(rs)) {
						names := []string{"one"}
						if how != "list" && how != "shared list" {
							names = append(slices.Collect(maps.Keys(tc.want)), "one", "two")
						}
						got := map[string]string{}
						for _, name := range names {
							one, err := rs[how](c.ctx, name)
							if err != nil {
								t.Fatalf("%s: %v", how, err)
							}
							maps.Copy(got, one)
						}
						if diff := cmp.Diff(tc.want, got); diff != "" {
							t.Errorf("%s (-want +got):\n%s", how, diff)
						}
					}
					if n := c.requests("get", "list") - before; n != 0 {
						t.Errorf("reading made %d requests, want none", n)
					}
				})
			})
		}
	}
}
