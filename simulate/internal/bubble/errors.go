package bubble

import (
	"context"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// steadyErrors replaces the handler of [utilruntime.HandleError] that waits until a millisecond has passed since the
// last error. That error may be of an earlier bubble, in which it was later. The handler then would wait until that
// time, or, for the first error of the process, for months.
var steadyErrors = sync.OnceFunc(func() {
	for i, handle := range utilruntime.ErrorHandlers {
		name := runtime.FuncForPC(reflect.ValueOf(handle).Pointer()).Name()
		if strings.Contains(name, "util/runtime.") && strings.Contains(name, "backoffError") {
			utilruntime.ErrorHandlers[i] = func(ctx context.Context, _ error, _ string, _ ...any) {
				timer := time.NewTimer(time.Millisecond)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
			}
		}
	}
})
