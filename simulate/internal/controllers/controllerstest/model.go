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
	var early []apiserver.Change // of the namespaces that the server makes
	m.Server, err = apiserver.New(apiserver.Options{
		Pipe: true, Strict: true, OnChange: func(c apiserver.Change) {
			if m.Controllers == nil {
				early = append(early, c)
				return
			}
			m.Controllers.OnChange(c)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	m.Register(apiserver.Widgets())
	m.Controllers = controllers.New(controllers.Options{Config: m.Config(), Delay: delay})
	for _, c := range early {
		m.Controllers.OnChange(c)
	}
	for _, obj := range controllers.Objects("default", "kube-node-lease", "kube-public", "kube-system") {
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
