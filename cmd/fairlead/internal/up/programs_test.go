package up

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"
)

// served is a writer that reports the first line with the address of a fake controller.
type served chan struct{}

func (s served) Write(p []byte) (int, error) {
	if _, ok := controller.ServedAddress(string(p)); ok {
		close(s)
	}
	return len(p), nil
}

// TestRunProgram: a program of --with ends with the context. An earlier end is an error, even with exit code 0.
func TestRunProgram(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	running := make(served)
	ended := make(chan error, 1)
	go func() {
		ended <- runProgram(ctx, running, "kubeconfig", []string{self, "controller", "--listen", "127.0.0.1:0"})
	}()
	<-running
	stop()
	if err := <-ended; err != nil {
		t.Errorf("after a stop: %v", err)
	}
	for want, command := range map[string][]string{
		"ended: exit status 1":  {self, "controller", "--listen", "nowhere"},
		"up.test ended":         {self, "-test.run", "^$"},
		"nosuchprogram ended: ": {"./nosuchprogram"},
	} {
		if err := runProgram(t.Context(), new(strings.Builder), "kubeconfig", command); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", command, err, want)
		}
	}
}
