// Package e2e_test runs the program director on a real control plane, beside a controller of operations.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var (
	env             clustertest.Env
	directorProgram program.Program
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(directorProgram.Main(env.Main(m))) }
