package live

import (
	"context"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// A watch that expires is followed by a list, of which the follower reports what has changed since: also what is gone.
func TestFollowerListsAgain(t *testing.T) {
	things := apiserver.Resource{Group: "a.example", Version: "v1", Resource: "things", Kind: "Thing", Namespaced: true}
	thing := func(name, version string) unstructured.Unstructured {
		u := unstructured.Unstructured{Object: map[string]any{"apiVersion": "a.example/v1", "kind": "Thing"}}
		u.SetName(name)
		u.SetNamespace("default")
		u.SetUID(types.UID(name))
		u.SetResourceVersion(version)
		return u
	}
	lists := make(chan []unstructured.Unstructured, 2)
	lists <- []unstructured.Unstructured{thing("stays", "1"), thing("changes", "2"), thing("goes", "3")}
	lists <- []unstructured.Unstructured{thing("stays", "1"), thing("changes", "5"), thing("comes", "6")}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{things.GVR(): "ThingList"})
	client.PrependReactor("list", "things", func(clienttesting.Action) (bool, runtime.Object, error) {
		out := &unstructured.UnstructuredList{Items: <-lists}
		out.SetAPIVersion("a.example/v1")
		out.SetKind("ThingList")
		out.SetResourceVersion("6")
		return true, out, nil
	})
	watches := make(chan *watch.RaceFreeFakeWatcher, 2)
	client.PrependWatchReactor("things", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewRaceFreeFake()
		watches <- w
		return true, w, nil
	})
	f := newFollower(client)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	listed := make(chan struct{})
	following.Go(func() { f.follow(ctx, things, func() { close(listed) }) })
	<-listed
	var reported []string
	f.attach(func(c apiserver.Change) {
		switch {
		case c.New == nil:
			reported = append(reported, "-"+c.Old.GetName())
		case c.Old == nil:
			reported = append(reported, "+"+c.New.GetName())
		default:
			reported = append(reported, c.New.GetName())
		}
	})
	f.mu.Lock()
	reported = nil // the present objects
	f.mu.Unlock()
	expired := apierrors.NewResourceExpired("too old resource version").Status()
	first := <-watches
	first.Error(&expired)
	second := <-watches // after the list
	f.mu.Lock()
	slices.Sort(reported)
	if want := []string{"+comes", "-goes", "changes"}; !slices.Equal(reported, want) {
		t.Errorf("the changes are %q, want %q", reported, want)
	}
	f.mu.Unlock()
	cancel()
	first.Stop()
	second.Stop()
	following.Wait()
	if err := f.failure(); err != nil {
		t.Error(err)
	}
}

// The owner of a follower hears of definitions as soon as they are established, and a kind that is not served any more
// is no failure.
func TestFollowerDefinitions(t *testing.T) {
	crds := apiserver.Resource{
		Group: definitions.Group, Version: definitions.Version, Resource: definitions.Resource,
		Kind: "CustomResourceDefinition",
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{definitions: "CustomResourceDefinitionList"})
	client.PrependReactor("list", definitions.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(definitions.GroupResource(), "")
	})
	f := newFollower(client)
	var defined []string
	f.defined = func(crd *unstructured.Unstructured) { defined = append(defined, crd.GetName()) }
	for _, status := range []string{"False", "True"} {
		u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
			"conditions": []any{map[string]any{"type": "Established", "status": status}},
		}}}
		u.SetName("things is " + status)
		u.SetUID("things")
		if err := f.take(crds, watch.Event{Type: watch.Modified, Object: u}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"things is True"}; !slices.Equal(defined, want) {
		t.Errorf("the definitions are %q, want %q", defined, want)
	}
	listed := false
	if f.follow(t.Context(), crds, func() { listed = true }); !listed || f.failure() != nil {
		t.Errorf("listed: %t, failure: %v", listed, f.failure())
	}
}
