// Package e2e_test compares caches and clients of controller-runtime with ours, on a real control plane.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
)

var env clustertest.Env

func TestMain(m *testing.M) {
	// One of them compares the times of two errors, of which one may be on a fake clock.
	utilruntime.ErrorHandlers = nil //nolint:reassign // it is how upstream has it changed
	goleak.VerifyTestMain(env.Main(m),
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"), // of stock metadata informers
		// Of controller-runtime, for a handler that is removed, or ends with its cache, before it has synced.
		goleak.IgnoreTopFunction(
			"sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1",
		),
	)
}

// open creates the cache and the client of a peer in a new namespace. The cache is not started.
func open(t *testing.T, p peer.Peer, opts cache.Options) *peer.World {
	t.Helper()
	return p.Open(t, env.Config(t), env.Namespace(t), opts)
}

// start is open, and runs the cache until the test ends, or until Stop.
func start(t *testing.T, p peer.Peer, opts cache.Options) *peer.World {
	t.Helper()
	w := open(t, p, opts)
	w.Start()
	return w
}
