package controller

import (
	"testing"

	"github.com/fairlead-io/fairlead/simulate"
)

// Whatever fails, a Site becomes ready, follows a change and leaves nothing behind.
func TestSiteFaults(t *testing.T) {
	simulate.Test(t, simulate.Subject{Start: simulated, CRDs: "../deploy/crds"},
		simulate.External("edge", newEdge),
		simulate.Apply("../samples/site.yaml"),
		simulate.AwaitCondition("sites.web.example.com/sample", "Ready"),
		simulate.Patch("sites.web.example.com/sample", `{"spec":{"config":{"greeting":"bye"},"port":null}}`),
		simulate.AwaitCondition("sites.web.example.com/sample", "Ready"),
		simulate.Delete("sites.web.example.com/sample"),
		simulate.Gone("sites.web.example.com/sample"),
		simulate.Schedules(50),
	)
}
