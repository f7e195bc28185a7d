package dependent_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// BenchmarkNothingToDo measures a round over a primary and its four children without changes: from the trigger to the
// report, with its fiber.
func BenchmarkNothingToDo(b *testing.B) {
	server := testbed.Server(b, apiserver.Options{Resources: testbed.Resources()})
	defer server.Close()
	testbed.Put(b, server, testbed.New("a", "web"))
	host := testbed.NewHost(b, server.Config(), testbed.Mapper(testbed.Resources()))
	engine := newEngine()
	defer engine.Close(context.WithoutCancel(b.Context()))
	reports := make(chan bool, 100)
	g := dependent.For[gateway]().Engine(engine).Status(func(_ *gateway, r *dependent.Report) { reports <- r.Ready() })
	for i := range 4 {
		dependent.Add(g, fmt.Sprintf("child-%d", i), func(_ context.Context, gw *gateway) (*corev1.ConfigMap, error) {
			return configMap(fmt.Sprintf("%s-%d", gw.Name, i), map[string]string{"a": "1", "b": "2"}), nil
		})
	}
	c := g.Controller(host, "gateways", reconcile.MaxInterval(-1))
	host.Start(b.Context())
	defer func() {
		if err := host.Stop(); err != nil {
			b.Error(err)
		}
	}()
	for !<-reports {
	}
	sent := len(server.Log().Requests)
	b.ReportAllocs()
	for b.Loop() {
		c.Trigger(web, "benchmark")
		<-reports
	}
	if n := len(server.Log().Requests) - sent; n > 0 {
		b.Errorf("%d requests", n)
	}
}
