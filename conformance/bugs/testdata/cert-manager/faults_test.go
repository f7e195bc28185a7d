// Package bug runs the controllers of certificates with a self-signing issuer.
package bug

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cert-manager/cert-manager/pkg/acme/accounts"
	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/metrics"
	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fairlead-io/fairlead/simulate"
)

var until = flag.Duration("for", 2*time.Minute, "the time of all runs")

func TestFaults(t *testing.T) {
	klog.SetLogger(logr.Discard())
	http.DefaultTransport = servers
	simulate.Test(t, simulate.Subject{Start: start, CRDs: "crds"},
		simulate.Apply("certificate.yaml"),
		simulate.AwaitCondition("certificates/web", "Ready"),
		simulate.Until(*until),
	)
}

// start does what the program does with the controllers that are imported.
func start(ctx context.Context, cfg *rest.Config) error {
	host, err := servers.add(cfg)
	if err != nil {
		return err
	}
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		APIServerHost: host, KubernetesAPIQPS: 20, KubernetesAPIBurst: 50,
		Clock: clock.RealClock{}, Metrics: metrics.New(logr.Discard(), clock.RealClock{}),
		ACMEOptions: controller.ACMEOptions{AccountRegistry: accounts.NewDefaultRegistry()},
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan error, len(controller.Known()))
	for name, constructor := range controller.Known() {
		c, err := constructor(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		wg.Go(func() { ended <- c.Run(1, ctx.Done()) })
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// servers is the default transport of this process. The packages under test only take the host of an API server, which
// has no address outside of this process.
var servers = &router{}

type router struct {
	last atomic.Int64
	to   sync.Map // host → server
}

type server struct {
	transport http.RoundTripper
	url       *url.URL
}

// add returns a URL that leads to the API server of a configuration.
func (r *router) add(cfg *rest.Config) (string, error) {
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return "", err
	}
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return "", err
	}
	host := fmt.Sprintf("server-%d.example.com", r.last.Add(1))
	r.to.Store(host, server{transport, u})
	return "http://" + host, nil
}

func (r *router) RoundTrip(req *http.Request) (*http.Response, error) {
	v, ok := r.to.Load(req.URL.Host)
	if !ok {
		return nil, fmt.Errorf("there is no server %s", req.URL.Host)
	}
	s := v.(server)
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host, req.Host = s.url.Scheme, s.url.Host, ""
	return s.transport.RoundTrip(req)
}
