package client_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// The response to an eviction does not show the pod. The next read shows the eviction all the same.
func TestEvictionIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Pod"}})
		defer c.close()
		p := pod("web")
		if err := c.client.Create(c.ctx, p); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		c.server.On(apiserver.Match{Verb: "create", Subresource: "eviction"},
			apiserver.Before(func(context.Context, apiserver.Request) {
				if err := c.server.Remove(pods, "a", "web"); err != nil {
					t.Error(err)
				}
			}), apiserver.Respond(http.StatusCreated, "application/json",
				`{"kind":"Status","apiVersion":"v1","status":"Success","code":201}`))
		body := &policyv1.Eviction{ObjectMeta: p.ObjectMeta}
		if err := c.client.SubResource("eviction").Create(c.ctx, p, client.Body(body)); err != nil {
			t.Fatal(err)
		}
		if body.Name != "web" || body.Kind == "Status" {
			t.Errorf("the body became %+v", body)
		}
		if _, err := client.Get[corev1.Pod](c.ctx, c.client, key("web")); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})
}

// The response to a scale has the new version of the object. The write returns when reads show that version, from the
// watch or else from the server.
func TestScaleIsRead(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
			defer c.close()
			c.put(foreign("web", "replicas", "1"))
			synctest.Wait()
			hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
			if !held {
				time.AfterFunc(50*time.Millisecond, hold.Release)
			} else {
				defer hold.Release()
			}
			next := c.server.Revision() + 1
			c.server.On(apiserver.Match{Verb: "update", Subresource: "scale"},
				apiserver.Before(func(context.Context, apiserver.Request) {
					c.put(foreign("web", "replicas", "3"))
				}), apiserver.Respond(http.StatusOK, "application/json", fmt.Sprintf(
					`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web","namespace":"a","resourceVersion":"%d"},"spec":{"replicas":3}}`, next)))
			scale := &autoscalingv1.Scale{
				ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "a"},
				Spec:       autoscalingv1.ScaleSpec{Replicas: 3},
			}
			begun := time.Now()
			err := c.client.SubResource("scale").Update(c.ctx, configMap("web"), client.Body(scale))
			want := map[bool]time.Duration{true: 100 * time.Millisecond, false: 50 * time.Millisecond}[held]
			if err != nil || time.Since(begun) != want {
				t.Errorf("held %v: after %v: %v", held, time.Since(begun), err)
			}
			if scale.ResourceVersion != fmt.Sprint(next) {
				t.Errorf("the body lacks the response: %+v", scale)
			}
			cm, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
			if err != nil || cm.Data["replicas"] != "3" {
				t.Errorf("held %v: got %v, %v", held, cm, err)
			}
		})
	}
}
