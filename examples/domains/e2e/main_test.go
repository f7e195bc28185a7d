// Package e2e_test runs the program domains on a real control plane.
package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var (
	env     clustertest.Env
	domains program.Program
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(domains.Main(env.Main(m))) }

// The program plays the story of the README, a shorter one.
func TestStory(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	p := domains.Start(t, program.Options{Config: env.Config(t), Args: []string{
		"--namespaces=2", "--domains=4", "--servers=2", "--delay=100ms", "--listen=127.0.0.1:0",
		"--prefix=" + env.Namespace(t),
	}})
	p.Wait(ctx)
	for _, want := range []string{
		"8 domains in 2 namespaces are up", "managed-servers:cancel", "the operator stops",
		"another one starts: all 8 are done",
	} {
		if !strings.Contains(p.Output(), want) {
			t.Errorf("it lacks %q:\n%s", want, p.Output())
		}
	}
}
