package clustertest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// Program is a program that runs until the context ends, such as a fairlead.Runtime.
type Program interface {
	Run(ctx context.Context) error
}

// Run runs a program until the test ends, and waits for its end. An error of the program fails the test.
func Run(t testing.TB, p Program) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the program: %v", err)
		}
	})
}

// Eventually calls holds every 20 ms until it returns nil. The test fails with the last error if that takes more than
// five minutes. subject begins the message, such as "the Deployment".
func Eventually(t testing.TB, subject string, holds func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", subject, err)
		}
	}
}

// Logger returns a logger that writes warnings and errors to the output of the test.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
