// Package operationbed is the test bed of operations: an API server that serves Operations and Webhooks, a receiver
// of webhook calls, and executors.
package operationbed

import (
	"context"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Server starts a server with the default resources, Operations and Webhooks, and closes it when the test ends. The
// server enforces the rules of the custom resource about changes of Operations. Unlike a real server it does not
// validate fields against the schemas and sets no defaults.
func Server(t *testing.T) *apiserver.Server {
	t.Helper()
	return ServerWith(t, apiserver.Options{})
}

// ServerWith is like Server with other options. It serves Operations and Webhooks in addition to o.Resources.
func ServerWith(t *testing.T, o apiserver.Options) *apiserver.Server {
	t.Helper()
	if o.Resources == nil {
		o.Resources = apiserver.DefaultResources()
	}
	custom := func(plural, kind string) apiserver.Resource {
		return apiserver.Resource{
			Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: plural, Kind: kind,
			Namespaced: true, Subresources: []string{"status"},
		}
	}
	operations := custom("operations", v1alpha1.KindOperation)
	operations.Validate = validateChange
	o.Resources = append(o.Resources, operations, custom("webhooks", v1alpha1.KindWebhook))
	s, err := apiserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Follow returns a store that follows the objects of some namespaces until ctx or the test ends.
func Follow(
	ctx context.Context, t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, kind string,
	namespaces ...string,
) *store.Store {
	t.Helper()
	st := store.New(store.Options{Resource: gvr, Kind: gvr.GroupVersion().WithKind(kind), Namespaced: true})
	src, err := source.New(source.Config{REST: config, Resource: gvr, Namespaces: namespaces}, st.Sink)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		defer st.Close()
		if err := src.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return st
}
