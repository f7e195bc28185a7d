package client_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A controller gets no events for its own writes, and gets those of all other clients.
func TestOwnEchoesAreKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"Pod"}})
		defer c.close()
		cursor := c.cache.Stores(pods)[0].Subscribe(store.SubscribeOptions{From: store.FromNow, HoldWrites: "controller"})
		defer cursor.Close()
		events := func() (out []string) {
			synctest.Wait()
			for evs := cursor.Take(100); len(evs) > 0; evs = cursor.Take(100) {
				for _, e := range evs {
					if e.Object != nil {
						out = append(out, fmt.Sprint(e.Type, " ", e.Key.Name))
					}
				}
			}
			return out
		}
		events()
		ours := binding.With(c.ctx, binding.Binding{Write: store.WriteContext{Owner: "controller", Primary: key("web")}})
		p := pod("web")
		if err := c.client.Create(ours, p); err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = corev1.PodRunning
		if err := c.client.Status().Update(ours, p); err != nil {
			t.Fatal(err)
		}
		if err := client.Modify(ours, c.client, p,
			func(p *corev1.Pod) error { p.Labels = map[string]string{"l": "v"}; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := c.client.Patch(ours, p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"l":"w"}}}`)),
			client.SameVersion()); err != nil {
			t.Fatal(err)
		}
		relabel := []byte(`[{"op":"replace","path":"/metadata/labels/l","value":"j"}]`)
		if err := c.client.Patch(ours, p, client.RawPatch(types.JSONPatchType, relabel), client.SameVersion()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string(nil), events()); diff != "" {
			t.Errorf("own writes came back (-want +got):\n%s", diff)
		}
		relabel = []byte(`[{"op":"replace","path":"/metadata/labels/l","value":"k"}]`)
		if err := c.client.Patch(ours, p, client.RawPatch(types.JSONPatchType, relabel)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"MODIFIED web"}, events()); diff != "" {
			t.Errorf("a JSON patch without a version (-want +got):\n%s", diff)
		}
		if err := c.client.Patch(c.ctx, p, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"l":"x"}}}`))); err != nil {
			t.Fatal(err)
		}
		if err := c.client.Delete(ours, p, client.Grace(0)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"MODIFIED web", "MODIFIED web", "DELETED web"}, events()); diff != "" {
			t.Errorf("writes and deletions of others (-want +got):\n%s", diff)
		}
	})
}
