package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
)

// await runs a flow that waits, and returns its duration and error.
func await(t *testing.T, c *cluster, w flow.Wait, timeout time.Duration, meanwhile func()) (time.Duration, error) {
	t.Helper()
	type packet struct{}
	e := flow.NewEngine(flow.EngineOptions{})
	fl := flow.New("wait", flow.Step("wait", func(_ context.Context, f *flow.Fiber[packet]) flow.Next {
		return f.Await(w, flow.Timeout(timeout))
	}))
	begun := time.Now()
	h, err := fl.Start(c.ctx, e, new(packet), flow.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if meanwhile != nil {
		synctest.Wait()
		meanwhile()
	}
	err = h.Wait(c.ctx)
	took := time.Since(begun)
	if err := e.Close(c.ctx); err != nil {
		t.Error(err)
	}
	return took, err
}

// TestAWaitQuotesConditions: the text of a wait quotes the conditions of the object that it waits for.
func TestAWaitQuotesConditions(t *testing.T) {
	t.Parallel()
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: "Initialized", Status: "True"},
				{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "0/1 nodes are available"},
			}},
		}
	}
	const quote = "PodScheduled is False (Unschedulable): 0/1 nodes are available"
	for _, watch := range [][]string{nil, {"Pod"}} {
		for _, tc := range []struct {
			reason  string
			wait    func(*client.Client) flow.Backstopped
			message string
			seen    string
		}{
			{"a function of the pod", func(c *client.Client) flow.Backstopped {
				return client.When(c, key("web"), func(p *corev1.Pod) (bool, error) { return p == nil, nil })
			}, "; " + quote + "; Initialized is True", "the condition does not hold at version "},
			{"a missing condition", func(c *client.Client) flow.Backstopped {
				return client.Condition[corev1.Pod](c, key("web"), "Ready")
			}, "Ready of Pod a/web: it has no such condition; " + quote, "it has no such condition"},
			{"an existing condition", func(c *client.Client) flow.Backstopped {
				return client.Condition[corev1.Pod](c, key("web"), "PodScheduled")
			}, ": False, Unschedulable, 0/1 nodes are available; Initialized is True", "False, Unschedulable, 0/1 nodes"},
		} {
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: watch})
				defer c.close()
				u := c.put(pod("web"))
				if watch != nil {
					c.seen(pods, u)
				}
				w := tc.wait(c.client)
				if ok, err := w.Check(c.ctx, false); ok || err != nil {
					t.Fatalf("%s: %v %v", tc.reason, ok, err)
				}
				causes := w.(flow.Explained).Why()
				if len(causes) != 1 || !strings.Contains(causes[0].Message, tc.message) ||
					!strings.HasPrefix(causes[0].Evidence["seen"], tc.seen) {
					t.Errorf("%s, watched %v: %+v", tc.reason, watch, causes)
				}
			})
		}
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	green := func(c *client.Client) flow.Wait {
		return client.When(c, key("web"), func(cm *corev1.ConfigMap) (bool, error) {
			return cm != nil && cm.Data["colour"] == "green", nil
		})
	}
	broken := errors.New("broken")
	for _, tc := range []struct {
		reason    string
		setup     setup
		wait      func(*client.Client) flow.Wait
		hold      bool // the watch is behind
		meanwhile func(c *cluster)
		took      time.Duration // at most, and more than nothing: backstops are spread
		err       error
	}{
		{"true already", setup{watch: []string{"ConfigMap"}}, func(c *client.Client) flow.Wait {
			return client.Gone[corev1.ConfigMap](c, key("absent"))
		}, false, nil, 0, nil},
		{"an event", setup{watch: []string{"ConfigMap"}}, green, false, func(c *cluster) {
			c.put(foreign("web", "colour", "green"))
		}, 0, nil},
		{
			"a deletion",
			setup{watch: []string{"ConfigMap"}},
			func(c *client.Client) flow.Wait { return client.Gone[corev1.ConfigMap](c, key("web")) }, false,
			func(c *cluster) {
				if err := c.server.Remove(configMaps, "a", "web"); err != nil {
					c.t.Fatal(err)
				}
			}, 0, nil,
		},
		{
			"an own write, before its event",
			setup{watch: []string{"ConfigMap"}},
			green, true,
			func(c *cluster) {
				if err := client.Modify(c.ctx, c.client, configMap("web"), set("colour", "green")); err != nil {
					c.t.Fatal(err)
				}
			}, 0, nil,
		},
		{
			"the backstop, when the watch is behind",
			setup{watch: []string{"ConfigMap"}, options: client.Options{Backstop: 7 * time.Second}},
			green, true,
			func(c *cluster) { c.put(foreign("web", "colour", "green")) }, 7 * time.Second, nil,
		},
		{"the backstop, when nothing is watched", setup{}, green, false, func(c *cluster) {
			c.put(foreign("web", "colour", "green"))
		}, 30 * time.Second, nil},
		{"a timeout", setup{watch: []string{"ConfigMap"}}, green, false, nil, time.Minute, flow.ErrTimeout},
		{"an error of the condition", setup{watch: []string{"ConfigMap"}}, func(c *client.Client) flow.Wait {
			return client.When(c, key("web"), func(*corev1.ConfigMap) (bool, error) { return false, broken })
		}, false, nil, 0, broken},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, tc.setup)
				defer c.close()
				c.put(foreign("web", "colour", "red"))
				synctest.Wait()
				if tc.hold {
					hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
					defer hold.Release()
				}
				var meanwhile func()
				if tc.meanwhile != nil {
					meanwhile = func() { tc.meanwhile(c) }
				}
				took, err := await(t, c, tc.wait(c.client), time.Minute, meanwhile)
				if took > tc.took || took == 0 && tc.took > 0 || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
					t.Errorf("ended after %v with %v, want %v and %v", took, err, tc.took, tc.err)
				}
			})
		})
	}
}

// The step after a wait reads the state that the wait has read from the server.
func TestStateOfAWaitIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		c.put(foreign("web", "colour", "red"))
		synctest.Wait()
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		c.put(foreign("web", "colour", "green"))
		w := client.When(c.client, key("web"),
			func(cm *corev1.ConfigMap) (bool, error) { return cm.Data["colour"] == "green", nil })
		if _, err := await(t, c, w, time.Minute, nil); err != nil {
			t.Fatal(err)
		}
		cm, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
		if err != nil || cm.Data["colour"] != "green" {
			t.Errorf("got %v, %v", cm, err)
		}
	})
}

func TestCondition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Pod"}})
		defer c.close()
		p := pod("web")
		if err := c.client.Create(c.ctx, p); err != nil {
			t.Fatal(err)
		}
		took, err := await(t, c, client.Condition[corev1.Pod](c.client, key("web"), "Ready"), time.Minute, func() {
			for _, s := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
				<-time.After(time.Second)
				p.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: s}}
				if err := c.client.Status().Update(c.ctx, p); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil || took != 2*time.Second {
			t.Errorf("ended after %v with %v", took, err)
		}
	})
}

func TestWaitForCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{
			watch:  []string{"ConfigMap", "Pod"},
			server: apiserver.Options{BookmarkInterval: time.Hour},
		})
		defer c.close()
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch", Resource: "configmaps"})
		c.put(foreign("web"))
		begun := time.Now()
		err := c.client.WaitForCache(c.ctx, configMap(""))
		if !errors.Is(err, client.ErrCacheBehind) || !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begun) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		hold.Release()
		// The watch of the pods has not reached the version of the server, and yet the cache has all of them.
		if err := c.client.WaitForCache(c.ctx); err != nil {
			t.Error(err)
		}
		hold = c.server.HoldEvents(apiserver.Match{Verb: "watch", Resource: "configmaps"})
		if err := c.server.Remove(configMaps, "a", "web"); err != nil {
			t.Fatal(err)
		}
		if err := c.client.WaitForCache(c.ctx, configMap("")); !errors.Is(err, client.ErrCacheBehind) {
			t.Errorf("WaitForCache must wait for a deletion, too, but returned %v", err)
		}
		hold.Release()
		c.put(foreign("web"))
		if err := c.client.WaitForCache(c.ctx, configMap("")); err != nil {
			t.Error(err)
		}
		if _, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web")); err != nil {
			t.Error(err)
		}
	})
}
