// Package e2e_test runs executors on a real control plane: by the custom resources that it checks by and keeps, up to
// the size that it stores, by its rights and by its tokens.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }
