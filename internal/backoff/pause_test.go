package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := backoff.Pause(t.Context(), time.Hour); err != nil || time.Since(begun) != time.Hour {
			t.Errorf("the pause ended after %v with %v", time.Since(begun), err)
		}
		cause := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		begun = time.Now()
		if err := backoff.Pause(ctx, time.Hour); err != cause || time.Since(begun) != time.Minute {
			t.Errorf("with the end of the context the pause ended after %v with %v", time.Since(begun), err)
		}
		if err := backoff.Pause(ctx, 0); err != nil {
			t.Errorf("a pause of zero ended with %v", err)
		}
	})
}
