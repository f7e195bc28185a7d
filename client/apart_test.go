package client_test

import (
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// A write that changes the status and another part at once fails with the key of the object. The test checks which part
// was written.
func TestStatusAndSpecAtOnce(t *testing.T) {
	t.Parallel()
	labelled := func(p *corev1.Pod) { p.Labels = map[string]string{"l": "new"} }
	running := func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }
	for _, tc := range []struct {
		reason string
		status bool // ModifyStatus
		change []func(*corev1.Pod)
		apart  bool
		want   string // label and phase afterwards
		sent   int    // patches
	}{
		{"both by Modify", false, []func(*corev1.Pod){labelled, running}, true, "new/Pending", 1},
		{"the status by Modify", false, []func(*corev1.Pod){running}, true, "old/Pending", 1},
		{"the rest by Modify", false, []func(*corev1.Pod){labelled}, false, "new/Pending", 1},
		{"both by ModifyStatus", true, []func(*corev1.Pod){labelled, running}, true, "old/Pending", 0},
		{"the rest by ModifyStatus", true, []func(*corev1.Pod){labelled}, true, "old/Pending", 0},
		{"the status by ModifyStatus", true, []func(*corev1.Pod){running}, false, "old/Running", 1},
		{"nothing", true, nil, false, "old/Pending", 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"Pod"}})
				defer c.close()
				p := pod("one")
				p.Labels = map[string]string{"l": "old"}
				if err := c.client.Create(c.ctx, p); err != nil {
					t.Fatal(err)
				}
				modify := client.Modify[corev1.Pod]
				if tc.status {
					modify = client.ModifyStatus[corev1.Pod]
				}
				err := modify(c.ctx, c.client, p, func(p *corev1.Pod) error {
					for _, fn := range tc.change {
						fn(p)
					}
					return nil
				})
				var typed *client.Error
				switch {
				case !tc.apart && err != nil:
					t.Errorf("got %v", err)
				case tc.apart && (!errors.Is(err, client.ErrStatusApart) || !errors.As(err, &typed) || typed.Key != key("one")):
					t.Errorf("got %v, want ErrStatusApart with the key", err)
				}
				live, err := client.Get[corev1.Pod](c.ctx, c.client, key("one"))
				if err != nil {
					t.Fatal(err)
				}
				if got := live.Labels["l"] + "/" + string(live.Status.Phase); got != tc.want {
					t.Errorf("the object is %s, want %s", got, tc.want)
				}
				if n := c.requests("patch"); n != tc.sent {
					t.Errorf("%d patches were sent, want %d", n, tc.sent)
				}
			})
		})
	}
}

// An unstructured object without its status, in Modify, is an error.
func TestModifyRemovesTheStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		w := widget("one")
		w.Object["status"] = map[string]any{"ready": true}
		c.put(w)
		err := client.Modify(c.ctx, c.client, widget("one"),
			func(w *unstructured.Unstructured) error { delete(w.Object, "status"); return nil })
		if !errors.Is(err, client.ErrStatusApart) {
			t.Errorf("got %v, want ErrStatusApart", err)
		}
	})
}

// A JSON patch with a version fails with 422 if another writer was faster. The client reports that as a conflict. A
// patch that does not fit the object is no conflict.
func TestConflictsOfJSONPatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, op string
		foreign    bool
		conflict   bool
	}{
		{"another writer was first", `{"op":"replace","path":"/data/k","value":"own"}`, true, true},
		{"no other writer", `{"op":"replace","path":"/data/k","value":"own"}`, false, false},
		{"the patch does not fit", `{"op":"remove","path":"/data/absent"}`, false, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
				defer c.close()
				cm := configMap("web", "k", "v")
				if err := c.client.Create(c.ctx, cm); err != nil {
					t.Fatal(err)
				}
				if tc.foreign {
					hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
					defer hold.Release()
					c.put(foreign("web", "k", "foreign"))
				}
				err := c.client.Patch(c.ctx, cm, client.RawPatch(types.JSONPatchType, []byte("["+tc.op+"]")), client.SameVersion())
				fits := tc.op[7:14] == "replace"
				if fits && !tc.foreign != (err == nil) || apierrors.IsConflict(err) != tc.conflict ||
					!fits && !apierrors.IsInvalid(err) {
					t.Errorf("got %v", err)
				}
				live, err := c.server.Object(configMaps, "a", "web")
				if err != nil {
					t.Fatal(err)
				}
				if got := live.Object["data"].(map[string]any)["k"]; tc.foreign && got != "foreign" {
					t.Errorf("the foreign change was overwritten: %v", got)
				}
			})
		})
	}
}
