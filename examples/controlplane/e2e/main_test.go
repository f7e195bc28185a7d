// Package e2e_test runs the program controlplane, which starts a control plane of its own.
package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var controlplane program.Program

func TestMain(m *testing.M) { goleak.VerifyTestMain(controlplane.Main(m)) }

// The program stores an object in the control plane, reads it back, and ends.
func TestProgram(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // the first start on a machine builds a control plane
	defer cancel()
	p := controlplane.Start(t, program.Options{})
	p.Wait(ctx)
	lines := strings.Split(strings.TrimSpace(p.Output()), "\n")
	if got := lines[len(lines)-1]; !strings.HasPrefix(got, "Kubernetes v1.") ||
		!strings.HasSuffix(got, "keeps the sea blue") {
		t.Errorf("got %q", got)
	}
}
