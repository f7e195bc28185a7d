package controllerruntime_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// The requests that find out what an informer lists do not count as failed requests of the program.
func TestNoRequestHasFailed(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	peer.Must(t, err)
	defer server.Close()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := controllerruntime.NewCache(server.Config(), cache.Options{Mapper: mapper})
	peer.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	if _, err := c.GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
	families, err := metrics.Registry.Gather()
	peer.Must(t, err)
	host, err := url.Parse(server.URL())
	peer.Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["host"] == host.Host && strings.Contains(labels["code"], "error") {
				t.Errorf("%s counts %v", f.GetName(), labels)
			}
		}
	}
	stop()
	peer.Must(t, <-ended)
}

// A cache of many namespaces starts with one request for each, all at once.
func TestManyNamespaces(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	peer.Must(t, err)
	t.Cleanup(server.Close)
	const n = 400
	namespaces := map[string]cache.Config{}
	for i := range n {
		namespaces[fmt.Sprintf("team-%d", i)] = cache.Config{}
	}
	gate := apiserver.NewGate() // throttled requests would wait for those that are held
	begins := apiserver.Match{Verb: "watch", Resource: "configmaps"}
	server.On(begins, apiserver.HoldRequest(gate))
	w := peer.Ours.Open(t, server.Config(), "team-0", cache.Options{DefaultNamespaces: namespaces})
	_, err = w.Cache.GetInformer(w.Ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	peer.Must(t, err)
	go func() {
		if gate.Wait(w.Ctx, n) != nil {
			t.Error("not all namespaces were asked for")
		}
		gate.Open()
	}()
	w.Start()
}
