// Package e2e_test runs the program allocator on a real control plane.
package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var (
	env       clustertest.Env
	allocator program.Program
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(allocator.Main(env.Main(m))) }

// The program plays its story, with random crashes and lost answers. It fails unless the books of the cloud have one
// address for each gateway, and none at the end.
func TestNothingIsAllocatedTwice(t *testing.T) {
	t.Parallel()
	seed.Play(t, 3, func(t *testing.T, seed uint64) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := allocator.Start(t, program.Options{Config: env.Config(t), Args: []string{
			"--gateways=6", "--crashes=6", "--lose=0.3", fmt.Sprint("--seed=", seed), "--namespace=" + env.Namespace(t),
		}})
		p.Wait(ctx)
		for _, want := range []string{"6 gateways, 6 addresses", "is killed", "nothing is left at the cloud"} {
			if !strings.Contains(p.Output(), want) {
				t.Errorf("it lacks %q:\n%s", want, p.Output())
			}
		}
	})
}
