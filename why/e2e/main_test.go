// Package e2e_test asks package why about programs that are stuck on a real control plane.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }
