package client_test

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// The response to a delete is lost, and an object of the same name is created before the retry.
func TestDeleteInDoubt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		watched bool
		opts    []client.WriteOption
		byName  bool
		stale   bool // the object is replaced before the delete without the cache's knowledge; no response is lost
		kept    bool // the new object remains
		refused bool
	}{
		{reason: "the cache knows the uid", watched: true, byName: true, kept: true},
		{reason: "the caller knows the uid", kept: true},
		{reason: "the caller requires the uid", opts: []client.WriteOption{client.SameUID()}, kept: true},
		{reason: "the uid is unknown", byName: true},
		{
			reason: "the uid of the cache is outdated, and the delete is by name", watched: true, byName: true,
			stale: true,
		},
		{
			reason: "the uid is outdated, and the delete requires it", watched: true, stale: true,
			opts: []client.WriteOption{client.SameUID()}, kept: true, refused: true,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := setup{}
				if tc.watched {
					s.watch = []string{"ConfigMap"}
				}
				c := start(t.Context(), t, s)
				defer c.close()
				old := configMap("web", "n", "1")
				if err := c.client.Create(c.ctx, old); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				replace := func(context.Context, apiserver.Request) {
					if err := c.server.Remove(configMaps, "a", "web"); err != nil && !apierrors.IsNotFound(err) {
						t.Error(err)
					}
					c.put(foreign("web", "n", "2"))
				}
				if tc.stale { // the caller must not read the new object either
					c.server.On(apiserver.Match{Verb: "get"}, apiserver.Answer(apiserver.Failure(403)))
					c.server.On(apiserver.Match{Verb: "delete", Times: 1}, apiserver.Before(replace))
				} else {
					c.server.On(apiserver.Match{Verb: "delete", Times: 1}, apiserver.After(replace), apiserver.DropAfter())
				}
				obj := old
				if tc.byName {
					obj = configMap("web")
				}
				if err := c.client.Delete(c.ctx, obj, tc.opts...); (err != nil) != tc.refused ||
					tc.refused && !apierrors.IsConflict(err) {
					t.Errorf("got %v", err)
				}
				synctest.Wait()
				live, err := c.server.Object(configMaps, "a", "web")
				if kept := err == nil; kept != tc.kept {
					t.Errorf("the new object exists: %v (%v)", kept, live)
				}
				got, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
				if tc.kept && (err != nil || got.Data["n"] != "2") || !tc.kept && !apierrors.IsNotFound(err) {
					t.Errorf("a read returns %v, %v", got, err)
				}
			})
		})
	}
}
