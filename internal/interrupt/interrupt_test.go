package interrupt_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/interrupt"
)

// child makes the test program wait for a first signal, and then for ever.
const child = "FAIRLEAD_INTERRUPT_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		ctx, _ := interrupt.Context(context.Background(), syscall.SIGTERM)
		fmt.Println("waiting")
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		select {}
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop"))
}

// The second signal ends the program as soon as the first one was noticed, however short the interval.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	for range 20 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for _, want := range []string{"waiting", "terminated signal received"} {
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("%q, want %q", lines.Text(), want)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Fatalf("after the second signal: %v", err)
		}
	}
}

// A second signal that arrives before the first was handled is sent again and not lost.
func TestTwoAtOnce(t *testing.T) {
	seen := make(chan os.Signal, 10)
	ctx, stop := interrupt.Context(t.Context(), syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Notify(seen, syscall.SIGUSR1, syscall.SIGUSR2) // so that a signal with its default action does not end the test
	defer signal.Stop(seen)
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2} {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		t.Errorf("%v is not a cancellation", cause)
	}
	<-seen
	<-seen
	stop()
}

func TestStop(t *testing.T) {
	ctx, stop := interrupt.Context(t.Context(), syscall.SIGUSR1)
	stop()
	if ctx.Err() == nil {
		t.Error("the context has not ended")
	}
	parent, end := context.WithCancelCause(t.Context())
	ctx, stop = interrupt.Context(parent, syscall.SIGUSR1)
	reason := errors.New("stop")
	end(reason)
	if <-ctx.Done(); context.Cause(ctx) != reason {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	stop()
}

func TestSignal(t *testing.T) {
	ctx, stop := interrupt.Context(t.Context(), syscall.SIGUSR1)
	defer stop()
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	if s := interrupt.Signal(derived); s != nil {
		t.Errorf("before a signal: %v", s)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	<-derived.Done()
	if s := interrupt.Signal(derived); s != syscall.SIGUSR1 {
		t.Errorf("after SIGUSR1: %v", s)
	}
	if s := interrupt.Signal(t.Context()); s != nil {
		t.Errorf("a context without signals: %v", s)
	}
}
