// Package e2e_test tests source, store and client together on a real control plane. There a bookmark is sent once a
// minute, and writes to other resources raise the resource version.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }
