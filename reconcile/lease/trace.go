package lease

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// trace records a span of a request that failed or was slow, unless the election was cancelled.
func (l *lock) trace(ctx context.Context, verb string, begun time.Time, err error) {
	if err == nil || !errors.Is(context.Cause(ctx), context.Canceled) {
		tracing.LeaseRequest(ctx, l.tracer, verb, l.Describe(), l.Identity(), begun, err)
	}
}
