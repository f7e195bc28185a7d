// Package e2e_test runs the program observers on a real control plane.
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/examples/internal/kubetest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var (
	env       clustertest.Env
	observers program.Program
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(observers.Main(env.Main(m))) }

// The program tells what happens to a ConfigMap, and ends at a signal.
func TestProgram(t *testing.T) {
	t.Parallel()
	user := kubetest.New(t, env.Config(t), env.Namespace(t))
	key := user.Namespace() + "/"
	before, added := user.Object("v1", "ConfigMap", "before"), user.Object("v1", "ConfigMap", "new")
	user.Create(before)
	p := observers.Start(t, program.Options{Config: env.Config(t), Env: []string{"METRICS=127.0.0.1:0"}})
	p.Expect("msg=Added key=" + key + "before initial=true")
	p.Expect("msg=Synchronized")
	added.Object["data"] = map[string]any{"v": "1"}
	user.Create(added)
	p.Expect("msg=Added key=" + key + "new initial=false")
	user.Modify(added, func(content map[string]any) { content["data"] = map[string]any{"v": "2"} })
	p.Expect("msg=changed key=" + key + "new old=map[v:1] new=map[v:2]")
	user.Delete(added)
	p.Expect("msg=Deleted key=" + key + "new")
	p.Stop()
}
