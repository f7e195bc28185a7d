// Package controllerstest has what the tests of package controllers share: a model cluster for a bubble of
// testing/synctest, scripts that also run on a real cluster, and a dump of a namespace in which the two are equal.
package controllerstest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/simulate/internal/controllers"
)

// Model is a model API server with controllers. It must be made inside a bubble.
type Model struct {
	*apiserver.Server
	Client      kubernetes.Interface
	Controllers *controllers.Controllers

	t *testing.T
}

// Start starts a model cluster with the namespace default.
func Start(t *testing.T, delay func(key string) time.Duration) *Model {
	t.Helper()
	m := &Model{t: t}
	var err error
	m.Server, err = apiserver.New(apiserver.Options{
		Pipe: true, Resources: Resources(), OnChange: func(c apiserver.Change) { m.Controllers.OnChange(c) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	m.Controllers = controllers.New(controllers.Options{Config: m.Config(), Delay: delay})
	for _, obj := range controllers.Objects("default") {
		if _, err := m.Put(obj); err != nil {
			t.Fatal(err)
		}
	}
	if m.Client, err = kubernetes.NewForConfig(m.Config()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Controllers.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

// Settle waits until the controllers are idle.
func (m *Model) Settle() {
	m.t.Helper()
	limit := time.Now().Add(10 * time.Minute)
	for synctest.Wait(); !m.Controllers.Idle(); synctest.Wait() {
		if time.Now().After(limit) {
			m.t.Fatal("the controllers never become idle")
		}
		<-time.After(50 * time.Millisecond)
	}
}

// Resources returns the resources that the controllers act on, and the server's default ones.
func Resources() []apiserver.Resource {
	all, have := apiserver.DefaultResources(), map[string]bool{}
	for _, r := range all {
		have[r.GVR().GroupResource().String()] = true
	}
	status := []string{"status"}
	for _, r := range []apiserver.Resource{
		{
			Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true,
			Subresources: status,
		},
		{Version: "v1", Resource: "persistentvolumes", Kind: "PersistentVolume", Subresources: status},
		{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses", Kind: "StorageClass"},
		{
			Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice", Namespaced: true,
		},
	} {
		if !have[r.GVR().GroupResource().String()] {
			all = append(all, r)
		}
	}
	return all
}
