// Package bug runs the program of the operator.
package bug

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/simulate"
)

var until = flag.Duration("for", 5*time.Minute, "the time of all runs")

func TestFaults(t *testing.T) {
	simulate.Test(t, simulate.Subject{CRDs: "crds"},
		simulate.Command("./operator", "-metrics-addr=127.0.0.1:0", "-health-probe-bind-address=127.0.0.1:0",
			"-enable-leader-election=false"),
		simulate.Apply("cluster.yaml"),
		simulate.Await(workers(2)),
		simulate.Patch("rayclusters/train", `{"spec":{"suspend":true}}`),
		simulate.Await(workers(0)),
		simulate.Invariant(atMost),
		simulate.Until(*until),
	)
}

// workers returns the condition that the status shows n workers.
func workers(n int64) func(simulate.World) error {
	return func(w simulate.World) error {
		u := w.Object("rayclusters/train")
		if u == nil {
			return fmt.Errorf("there is no RayCluster")
		}
		got, _, err := unstructured.NestedInt64(u.Object, "status", "availableWorkerReplicas")
		if err == nil && got != n {
			err = fmt.Errorf("there are %d workers, not %d", got, n)
		}
		return err
	}
}

// atMost checks that there are no more pods than the RayCluster has ordered.
func atMost(w simulate.World) error {
	heads, workers := 0, 0
	for _, pod := range w.Objects("pods") {
		switch {
		case pod.GetDeletionTimestamp() != nil:
		case pod.GetLabels()["ray.io/node-type"] == "head":
			heads++
		case pod.GetLabels()["ray.io/node-type"] == "worker":
			workers++
		}
	}
	if heads > 1 || workers > 2 {
		return fmt.Errorf("there are %d heads and %d workers, and the RayCluster has 1 and 2", heads, workers)
	}
	return nil
}
