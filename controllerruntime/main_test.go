package controllerruntime_test

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	// One of them compares the times of two errors, of which one may be on a fake clock.
	utilruntime.ErrorHandlers = nil //nolint:reassign // it is how upstream has it changed
	recordLog()
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"), // of stock metadata informers
		// Of controller-runtime, for a handler that is removed, or ends with its cache, before it has synced.
		goleak.IgnoreTopFunction(
			"sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1",
		),
	)
}
