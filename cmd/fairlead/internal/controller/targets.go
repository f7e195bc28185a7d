package controller

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// targets knows the addresses of the cluster itself that Webhooks must not reach: those of the API server, and the
// ranges of services and pods, which may be public. It only connects its parts, and has no state of its own.
type targets struct {
	calls   *call.Client
	log     *slog.Logger
	servers *serverAddresses
	ranges  *clusterRanges
	pending *checklist
}

const (
	// lookupInterval is the interval of address lookups for the API server, and lookupRetry the one after a failure.
	lookupInterval = 30 * time.Second
	lookupRetry    = 2 * time.Second
	// maxRangesWait bounds how long operations wait for the ranges of the cluster.
	maxRangesWait = 10 * time.Second

	serverSource = "the addresses of the API server"
)

var (
	nodes        = corev1.SchemeGroupVersion.WithResource("nodes")
	serviceCIDRs = networkingv1.SchemeGroupVersion.WithResource("servicecidrs")
)

func newTargets(config *rest.Config, calls *call.Client, log *slog.Logger) (*targets, error) {
	servers, err := newServerAddresses(config, calls)
	if err != nil {
		return nil, err
	}
	return &targets{
		calls: calls, log: log, servers: servers, ranges: newClusterRanges(),
		pending: newChecklist(log, nodes.Resource, serviceCIDRs.Resource, serverSource),
	}, nil
}

// options returns the targets for an executor.
func (t *targets) options(deny []string) executor.Targets {
	return executor.Targets{Never: t.servers.current, NeverHosts: t.servers.names, Deny: deny, Inside: t.ranges.all}
}

// run follows the addresses and ranges until ctx ends.
func (t *targets) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, of := range []struct {
		source source.Config
		read   func(raw []byte) ([]string, error)
	}{{source.Config{Resource: nodes}, podCIDRs}, {source.Config{Resource: serviceCIDRs}, serviceRanges}} {
		of.source.Connection, of.source.Encoding = t.calls.Connection(), source.JSON
		src, err := source.New(of.source, func(string) source.Sink {
			return t.sink(of.source.Resource.Resource, of.read)
		})
		if err != nil {
			return err
		}
		running.Go(func() {
			if err := src.Run(ctx); err != nil {
				t.log.ErrorContext(ctx, "cannot follow the ranges of the cluster", "error", err)
			}
		})
	}
	for {
		wait := lookupInterval
		if err := t.lookUpServers(ctx); err != nil && ctx.Err() == nil {
			wait = lookupRetry
			t.log.DebugContext(ctx, "cannot determine all addresses of the API server", "error", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

func (t *targets) sink(resource string, read func(raw []byte) ([]string, error)) *rangeSink {
	return &rangeSink{
		read: read, known: map[string][]netip.Prefix{},
		changed: func(all []netip.Prefix) { t.ranges.set(resource, all) },
		done:    func(err error) { t.pending.done(resource, err) },
		refused: func(name string, err error) {
			t.log.Warn("cannot read address ranges from an object of the cluster", "resource", resource, "name", name,
				"error", err)
		},
	}
}

func (t *targets) lookUpServers(ctx context.Context) error {
	unreadable, err := t.servers.lookUp(ctx)
	if err == nil {
		t.pending.done(serverSource, unreadable)
	}
	return err
}

// await waits until the ranges of the cluster are known or known to be unavailable, or term ends, at most for
// maxRangesWait. It must return before the first call of a Webhook.
func (t *targets) await(ctx, term context.Context) {
	select {
	case <-t.pending.empty:
		return
	default:
	}
	timer := time.NewTimer(maxRangesWait)
	defer timer.Stop()
	select {
	case <-t.pending.empty:
	case <-ctx.Done():
	case <-term.Done():
	case <-timer.C:
		t.log.WarnContext(ctx,
			"operations start before the address ranges of services and pods are known: "+
				"list public ones with --deny-target")
	}
}
