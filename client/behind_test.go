package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
)

// behind runs fn with a cache that shows old, or no object if it is nil, while the server has live.
func behind(t *testing.T, old, live *corev1.ConfigMap, replaced bool, fn func(c *cluster, seen *corev1.ConfigMap)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		if old != nil {
			c.put(old)
			synctest.Wait()
		}
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		if replaced {
			if err := c.server.Remove(configMaps, "a", "web"); err != nil {
				t.Fatal(err)
			}
		}
		seen := &corev1.ConfigMap{}
		if live != nil {
			c.put(live)
			if err := c.client.Live().Get(c.ctx, key("web"), seen); err != nil {
				t.Fatal(err)
			}
		}
		fn(c, seen)
	})
}

// The client does not rely on a cache that is older than the state that the caller has read. Such a cache may show no
// object, an earlier one, or an equal one that makes a write seem needless.
func TestWritesBehindAnOldCache(t *testing.T) {
	t.Parallel()
	caches := map[string]struct {
		old      *corev1.ConfigMap
		replaced bool
	}{
		"absent":   {nil, false},
		"older":    {foreign("web", "n", "1"), false},
		"replaced": {foreign("web", "n", "1"), true},
	}
	for name, write := range map[string]func(c *cluster, seen *corev1.ConfigMap) error{
		"Modify": func(c *cluster, seen *corev1.ConfigMap) error {
			return client.Modify(c.ctx, c.client, seen, func(cm *corev1.ConfigMap) error {
				if cm.Data["n"] != "2" {
					c.t.Errorf("the function gets %v, older than the state of its caller", cm.Data)
				}
				cm.Data["n"] = "1"
				return nil
			})
		},
		"Update": func(c *cluster, seen *corev1.ConfigMap) error {
			seen.Data["n"] = "1"
			return c.client.Update(c.ctx, seen)
		},
		"Patch of a difference": func(c *cluster, seen *corev1.ConfigMap) error {
			changed := seen.DeepCopy()
			changed.Data["n"] = "1"
			return c.client.Patch(c.ctx, changed, client.MergeFrom(seen))
		},
		"Patch of a difference to an earlier state": func(c *cluster, seen *corev1.ConfigMap) error {
			changed := seen.DeepCopy()
			changed.Data["n"], changed.UID, changed.ResourceVersion = "1", "", ""
			return c.client.Patch(c.ctx, changed, client.MergeFrom(seen))
		},
		"merge patch": func(c *cluster, seen *corev1.ConfigMap) error {
			return c.client.Patch(c.ctx, seen, client.RawPatch(types.MergePatchType, []byte(`{"data":{"n":"1"}}`)))
		},
		"JSON patch": func(c *cluster, seen *corev1.ConfigMap) error {
			return c.client.Patch(c.ctx, seen, client.RawPatch(types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/data/n","value":"1"}]`)))
		},
		"JSON patch of one version": func(c *cluster, seen *corev1.ConfigMap) error {
			patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/data/n","value":"1"}]`))
			return c.client.Patch(c.ctx, seen, patch, client.SameVersion())
		},
		"Apply": func(c *cluster, seen *corev1.ConfigMap) error {
			cm := configMap("web", "n", "1")
			cm.ResourceVersion = seen.ResourceVersion
			return c.client.Apply(c.ctx, cm, client.Force())
		},
	} {
		for shows, cache := range caches {
			t.Run(name+"/"+shows, func(t *testing.T) {
				t.Parallel()
				behind(t, cache.old, foreign("web", "n", "2"), cache.replaced, func(c *cluster, seen *corev1.ConfigMap) {
					uid := seen.UID
					if err := write(c, seen); err != nil {
						t.Fatal(err)
					}
					live, err := c.server.Object(configMaps, "a", "web")
					if err != nil || fmt.Sprint(live.Object["data"]) != "map[n:1]" || live.GetUID() != uid {
						t.Errorf("the server has %v, %v; want n=1 in %s", live, err, uid)
					}
				})
			})
		}
	}
}

// An apply is sent again when the caller has seen that another client has undone it.
func TestApplyAgainAfterAnUndo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		if err := c.client.Apply(c.ctx, configMap("web", "n", "1")); err != nil {
			t.Fatal(err)
		}
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		undone := c.put(foreign("web", "n", "2"))
		again := configMap("web", "n", "1")
		again.ResourceVersion = undone.GetResourceVersion()
		if err := c.client.Apply(c.ctx, again, client.Force()); err != nil {
			t.Fatal(err)
		}
		if live, err := c.server.Object(configMaps, "a", "web"); err != nil || fmt.Sprint(live.Object["data"]) != "map[n:1]" {
			t.Errorf("the server has %v, %v", live, err)
		}
	})
}

// A write that must carry the version of its base carries it also for an object that the cache lacks.
func TestApplyWithAVersion(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{true, false} {
		live := foreign("web", "n", "2")
		if !there {
			live = nil
		}
		behind(t, nil, live, false, func(c *cluster, seen *corev1.ConfigMap) {
			ctx := binding.With(c.ctx, binding.Binding{RequireVersion: true})
			if err := c.client.Apply(ctx, configMap("web", "n", "1"), client.Force()); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf(`"resourceVersion":%q`, seen.ResourceVersion)
			if body := lastBody(c, "apply") + lastBody(c, "patch"); there != (there && strings.Contains(body, want)) ||
				!there && strings.Contains(body, "resourceVersion") {
				t.Errorf("there %v: sent %s", there, body)
			}
		})
	}
}

// Modify by name asks the server before it treats an object as absent.
func TestModifyByNameAsksTheServer(t *testing.T) {
	t.Parallel()
	behind(t, nil, foreign("web", "n", "2"), false, func(c *cluster, _ *corev1.ConfigMap) {
		if err := client.Modify(c.ctx, c.client, configMap("web"), set("k", "v")); err != nil {
			t.Error(err)
		}
		if err := client.Modify(c.ctx, c.client, configMap("absent"), set("k", "v")); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})
	behind(t, foreign("web", "n", "1"), foreign("web", "n", "2"), true, func(c *cluster, seen *corev1.ConfigMap) {
		byUID := configMap("web")
		byUID.UID = seen.UID
		if err := client.Modify(c.ctx, c.client, byUID, set("k", "v")); err != nil {
			t.Error(err)
		}
	})
	behind(t, foreign("web", "n", "1"), foreign("web", "n", "2"), true, func(c *cluster, _ *corev1.ConfigMap) {
		cached, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Modify(c.ctx, c.client, cached.DeepCopy(), set("k", "v")); !errors.Is(err, client.ErrReplaced) {
			t.Errorf("got %v, want replaced", err)
		}
	})
}

// A wait for the end of an object trusts an absence only from the server. The cache counts if it has shown the object
// before.
func TestWaitForDeletionBehindAnOldCache(t *testing.T) {
	t.Parallel()
	behind(t, nil, foreign("web"), false, func(c *cluster, _ *corev1.ConfigMap) {
		took, err := await(t, c, client.Gone[corev1.ConfigMap](c.client, key("web")), time.Minute, nil)
		if !errors.Is(err, flow.ErrTimeout) {
			t.Errorf("ended after %v with %v, though the object exists", took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		c.put(foreign("web"))
		synctest.Wait()
		before := c.requests("get")
		if _, err := await(t, c, client.Gone[corev1.ConfigMap](c.client, key("web")), time.Minute, func() {
			if err := c.server.Remove(configMaps, "a", "web"); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Error(err)
		}
		if n := c.requests("get") - before; n != 0 {
			t.Errorf("%d requests although the watch has delivered the deletion", n)
		}
	})
}

// A process whose cache is behind finds the positions that another process has saved.
func TestPositionsBehind(t *testing.T) {
	t.Parallel()
	behind(t, nil, nil, false, func(c *cluster, _ *corev1.ConfigMap) {
		other, err := client.New(client.Options{Call: c.calls, Mapper: c.client.Mapper()})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		for i, step := range []string{"first", "second"} {
			if err := client.NewConfigMapPositions(other, key("web")).Save(c.ctx, "k", flow.Position{Step: step}); err != nil {
				t.Fatal(err)
			}
			pos := client.NewConfigMapPositions(c.client, key("web"))
			if p, found, err := pos.Load(c.ctx, "k"); err != nil || !found || p.Step != step {
				t.Errorf("load %d: %v, %v, %v; want %s", i, p, found, err, step)
			}
			if err := pos.Save(c.ctx, fmt.Sprint("own", i), flow.Position{Step: "own"}); err != nil {
				t.Errorf("save %d: %v", i, err)
			}
		}
	})
	positions(t, true, func(c *cluster, live *task) {
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		other, err := client.New(client.Options{Call: c.calls, Mapper: c.client.Mapper(), Scheme: taskScheme()})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		live = live.DeepCopyObject().(*task)
		if err := client.ModifyStatus(c.ctx, other, live, func(t *task) error {
			t.Status.Position = &flow.Position{Step: "wait"}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if p, found, err := client.NewStatusPosition(c.client, live, atPosition).Load(c.ctx, ""); err != nil || !found ||
			p.Step != "wait" {
			t.Errorf("load: %v, %v, %v", p, found, err)
		}
		made := &task{
			TypeMeta: live.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "made"},
			Status: taskStatus{Position: &flow.Position{Step: "last"}},
		}
		if err := other.Create(c.ctx, made); err != nil {
			t.Fatal(err)
		}
		if p, found, err := client.NewStatusPosition(c.client, made, atPosition).Load(c.ctx, ""); err != nil ||
			found != (made.Status.Position != nil) {
			t.Errorf("load from a new object: %v, %v, %v", p, found, err)
		}
		if err := client.NewStatusPosition(c.client, made, atPosition).Save(c.ctx, "",
			flow.Position{Step: "first"}); err != nil {
			t.Errorf("save in a new object: %v", err)
		}
	})
}
