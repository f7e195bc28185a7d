// Package e2e_test runs executors on a real control plane. It tests custom resource definitions, the size limit of
// objects, rights and tokens.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }
