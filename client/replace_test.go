package client_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

// A Replace is one request. Its result is read at once, is recognized as an own echo, and the object can be written
// again.
func TestReplace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Pod"}})
		defer c.close()
		p := pod("web")
		if err := c.client.Create(c.ctx, p); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cursor := c.cache.Stores(pods)[0].Subscribe(store.SubscribeOptions{From: store.FromNow, HoldWrites: "controller"})
		defer cursor.Close()
		cursor.Take(1)
		if len(p.ManagedFields) == 0 {
			t.Fatal("the server returns no managedFields, so the test proves nothing")
		}
		before := c.requests("get", "update", "patch")
		ours := binding.With(c.ctx, binding.Binding{Write: store.WriteContext{Owner: "controller", Primary: key("web")}})
		for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodRunning} {
			p.Status.Phase = phase
			if err := c.client.Status().Replace(ours, p); err != nil {
				t.Fatal(err)
			}
			if p.ManagedFields != nil {
				t.Errorf("the object has managedFields: %v", p.ManagedFields)
			}
			got, err := client.Get[corev1.Pod](c.ctx, c.client, key("web"))
			if err != nil || got.Status.Phase != phase || got.ResourceVersion != p.ResourceVersion {
				t.Errorf("wrote %s in version %s, and read %v, %v", phase, p.ResourceVersion, got, err)
			}
		}
		p.Labels = map[string]string{"seen": "true"}
		if err := c.client.Replace(ours, p); err != nil {
			t.Fatal(err)
		}
		if n := c.requests("get", "update", "patch") - before; n != 4 {
			t.Errorf("%d requests for 4 writes", n)
		}
		live, err := c.server.Object(pods, "a", "web")
		if err != nil || len(live.GetManagedFields()) == 0 || live.GetLabels()["seen"] != "true" ||
			live.GetResourceVersion() != p.ResourceVersion {
			t.Errorf("the server has %v, %v", live, err)
		}
		synctest.Wait()
		if events := cursor.Take(10); len(events) > 0 {
			t.Errorf("own writes came back: %v", events)
		}
	})
}

// After a Replace the object is the server's object of that version.
func TestReplaceAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		fault  func(c *cluster)
		opts   []client.WriteOption
		kept   func(answer []byte) bool
		change func(*corev1.ConfigMap)
		want   func(error) bool // nil: none
		data   string           // in the object afterwards
	}{
		"Conflict": {
			reason: "another version is stored: no retry, and the object is unchanged",
			fault:  func(c *cluster) { c.put(foreign("web", "n", "3")) },
			want:   apierrors.IsConflict, data: "2",
		},
		"Lost": {
			reason: "the response is lost, the write was executed, and no other one followed",
			fault: func(c *cluster) {
				c.server.On(apiserver.Match{Verb: "update", Times: 1}, apiserver.DropAfter())
			},
			data: "2",
		},
		"Unknown": {
			reason: "the outcome is unknown",
			fault: func(c *cluster) {
				c.server.On(apiserver.Match{Verb: "update"}, apiserver.DropAfter())
			},
			opts: []client.WriteOption{client.WithPolicy(call.Policy{Retries: -1})},
			want: func(err error) bool { return errors.Is(err, call.ErrOutcomeUnknown) }, data: "2",
		},
		"Dropped": {
			reason: "the response has a field that the object lacks, so it is decoded",
			kept:   func(answer []byte) bool { return bytes.Contains(answer, []byte("other")) },
			change: func(cm *corev1.ConfigMap) { cm.CreationTimestamp = metav1.Time{} }, // the server keeps it
			data:   "2",
		},
		"Unreadable": {
			reason: "the write was executed, but the response does not fit the Go type",
			fault: func(c *cluster) {
				c.server.On(apiserver.Match{Verb: "update", Times: 1}, apiserver.Respond(http.StatusOK, call.JSON,
					`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"a","name":"web","uid":"other","labels":{"n":1}}}`))
			},
			want: func(err error) bool { return err != nil }, data: "2",
		},
		"NoVersion": {
			reason: "the object has no version",
			change: func(cm *corev1.ConfigMap) { cm.ResourceVersion = "" },
			want:   func(err error) bool { return says(err, noVersion) }, data: "2",
		},
		"DryRun": {
			reason: "a dry run returns the object that the server would store",
			opts:   []client.WriteOption{client.DryRun()}, data: "2",
		},
		"Gone": {
			reason: "the object was deleted",
			fault: func(c *cluster) {
				if err := c.server.Remove(configMaps, "a", "web"); err != nil {
					t.Error(err)
				}
			},
			want: func(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }, data: "2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
				defer c.close()
				cm := configMap("web", "n", "1")
				if err := c.client.Create(c.ctx, cm); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if tc.fault != nil {
					tc.fault(c)
				}
				cm.Data["n"] = "2"
				if tc.change != nil {
					tc.change(cm)
				}
				sent := cm.DeepCopy()
				err := c.client.Replace(c.ctx, cm, append(tc.opts, writeoption.Kept(tc.kept))...)
				if tc.want == nil && err != nil || tc.want != nil && !tc.want(err) {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				if err != nil {
					if diff := cmp.Diff(sent, cm); diff != "" {
						t.Errorf("%s: the object was changed, -before +after:\n%s", tc.reason, diff)
					}
					return
				}
				if cm.Data["n"] != tc.data || cm.CreationTimestamp.IsZero() {
					t.Errorf("%s: the object is %v", tc.reason, cm)
				}
				got, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
				if err != nil || name != "DryRun" && got.ResourceVersion != cm.ResourceVersion {
					t.Errorf("%s: version %s is read as %v, %v", tc.reason, cm.ResourceVersion, got, err)
				}
			})
		})
	}
}

// The response is lost, and other clients write before the client finds that its write was executed. The object then
// has their version and content.
func TestReplaceLostAnswerAndForeignWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Pod"}})
		defer c.close()
		p := pod("web")
		if err := c.client.Create(c.ctx, p); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.server.On(apiserver.Match{Verb: "update", Times: 1}, apiserver.After(func(context.Context, apiserver.Request) {
			live, err := c.server.Object(pods, "a", "web")
			if err != nil {
				t.Error(err)
				return
			}
			live = live.DeepCopy()
			live.SetLabels(map[string]string{"foreign": "true"})
			c.put(live)
		}), apiserver.DropAfter())
		p.Status.Phase = corev1.PodRunning
		if err := c.client.Status().Replace(c.ctx, p); err != nil {
			t.Fatal(err)
		}
		if p.Labels["foreign"] != "true" || p.Status.Phase != corev1.PodRunning {
			t.Errorf("in version %s the object is %v", p.ResourceVersion, p)
		}
	})
}

// Replace refuses invalid writes before it sends a request.
func TestReplaceRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Pod"}})
		defer c.close()
		p := pod("web")
		if err := c.client.Create(c.ctx, p); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		shared, err := client.Get[corev1.Pod](c.ctx, c.client, key("web"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.client.Status().Replace(c.ctx, shared); !errors.Is(err, client.ErrShared) {
			t.Errorf("a shared object: %v", err)
		}
		deposed := errors.New("deposed")
		if err := c.client.Replace(binding.With(c.ctx, binding.Binding{Fence: func() error { return deposed }}),
			p); !errors.Is(err, client.ErrFenced) || !errors.Is(err, deposed) {
			t.Errorf("behind a fence: %v", err)
		}
		if err := c.client.Replace(c.ctx, p, client.Body(pod("other"))); err == nil {
			t.Error("with a Body: no error")
		}
		if n := c.requests("update"); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}
