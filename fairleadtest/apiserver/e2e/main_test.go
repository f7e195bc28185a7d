// Package e2e_test sends the same requests to a real API server and to the server of package apiserver, and compares
// the answers.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }
