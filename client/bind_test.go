package client_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A bound client asks its fence before each request and each retry, with any context.
func TestBoundClientIsFenced(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(c *cluster, own *client.Client, p *corev1.Pod) error{
		"Create":  func(c *cluster, own *client.Client, _ *corev1.Pod) error { return own.Create(c.ctx, pod("new")) },
		"Update":  func(c *cluster, own *client.Client, p *corev1.Pod) error { return own.Update(c.ctx, p) },
		"Replace": func(c *cluster, own *client.Client, p *corev1.Pod) error { return own.Status().Replace(c.ctx, p) },
		"Patch": func(c *cluster, own *client.Client, p *corev1.Pod) error {
			return own.Patch(c.ctx, p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"l":"x"}}}`)))
		},
		"Modify": func(c *cluster, own *client.Client, p *corev1.Pod) error {
			return client.Modify(c.ctx, own, p, func(p *corev1.Pod) error { p.Labels = map[string]string{"l": "y"}; return nil })
		},
		"Delete": func(c *cluster, own *client.Client, p *corev1.Pod) error { return own.Delete(c.ctx, p) },
		"DeleteCollection": func(c *cluster, own *client.Client, _ *corev1.Pod) error {
			return own.DeleteCollection(c.ctx, &corev1.Pod{}, client.Selection{Namespace: "a"})
		},
		"Live": func(c *cluster, own *client.Client, p *corev1.Pod) error {
			return own.Live().Get(c.ctx, client.KeyOf(p), p)
		},
		"List": func(c *cluster, own *client.Client, _ *corev1.Pod) error {
			return own.List(c.ctx, &corev1.PodList{}, client.Live())
		},
		"WaitForCache": func(c *cluster, own *client.Client, _ *corev1.Pod) error { return own.WaitForCache(c.ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"Pod"}})
				defer c.close()
				p := pod("web")
				if err := c.client.Create(c.ctx, p); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				p.Status.Phase = corev1.PodRunning
				before := c.server.Log().Count(apiserver.Match{})
				deposed := errors.New("deposed")
				own := c.client.Bound(binding.Binding{Fence: func() error { return deposed }})
				if err := send(c, own, p); !errors.Is(err, deposed) || !errors.Is(err, client.ErrFenced) {
					t.Errorf("got %v", err)
				}
				if n := c.server.Log().Count(apiserver.Match{}) - before; n != 0 {
					t.Errorf("%d requests were sent", n)
				}
			})
		})
	}
}

// A write that began in time is not retried too late.
func TestBoundClientIsFencedBetweenTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		c.server.On(apiserver.Match{Verb: "create"}, apiserver.Answer(apiserver.Failure(503)))
		deposed := errors.New("deposed")
		asked := 0
		own := c.client.Bound(binding.Binding{Fence: func() error {
			if asked++; c.requests("create") > 0 {
				return deposed
			}
			return nil
		}})
		if err := own.Create(c.ctx, pod("web"), client.WithPolicy(call.Policy{Retries: 3})); !errors.Is(err, deposed) {
			t.Errorf("got %v", err)
		}
		if n := c.requests("create"); n != 1 || asked < 2 {
			t.Errorf("%d requests, and the fence was asked %d times", n, asked)
		}
	})
}

// Bindings of clients and contexts add up, and the innermost owner wins.
func TestBindingsAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		var asked []string
		fence := func(name string) func() error { return func() error { asked = append(asked, name); return nil } }
		owned := func(name string) store.WriteContext {
			return store.WriteContext{Owner: name, Primary: key("web")}
		}
		ctx := binding.With(c.ctx, binding.Binding{Fence: fence("context"), Write: owned("context")})
		outer := c.client.Bound(binding.Binding{Fence: fence("outer"), RequireVersion: true, Write: owned("outer")})
		own := outer.Bound(binding.Binding{Fence: fence("inner")})
		cursor := c.cache.Stores(configMaps)[0].Subscribe(store.SubscribeOptions{From: store.FromNow, HoldWrites: "outer"})
		defer cursor.Close()
		cursor.Take(1)
		if err := own.Create(ctx, configMap("web", "n", "1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if events := cursor.Take(10); len(events) > 0 {
			t.Errorf("the owner got its own write: %v", events)
		}
		if diff := cmp.Diff([]string{"context", "outer", "inner"}, asked[:3]); diff != "" {
			t.Errorf("asked, -want +got:\n%s", diff)
		}
		unseen := configMap("unseen", "n", "1")
		if err := own.Update(c.ctx, unseen); !says(err, noVersion) {
			t.Errorf("without a version: %v", err)
		}
		if err := c.client.Create(c.ctx, configMap("free", "n", "1")); err != nil {
			t.Errorf("the original client is bound: %v", err)
		}
	})
}
