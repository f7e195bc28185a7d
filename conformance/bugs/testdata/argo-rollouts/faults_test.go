// Package bug runs the program of the operator.
package bug

import (
	"errors"
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
		simulate.Command("./operator", "--leader-elect=false", "--metricsPort=0", "--healthzPort=0"),
		simulate.Apply("experiment.yaml"),
		simulate.Await(started),
		simulate.Invariant(valid),
		simulate.Until(*until),
	)
}

// started is the condition that the controller has begun to work on the Experiment.
func started(w simulate.World) error {
	u := w.Object("experiments/compare")
	if u == nil {
		return errors.New("there is no Experiment")
	}
	if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase == "" {
		return errors.New("the Experiment has no phase")
	}
	return nil
}

// valid checks that the Experiment has no error, since nothing in it is wrong.
func valid(w simulate.World) error {
	u := w.Object("experiments/compare")
	if u == nil {
		return nil
	}
	if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase == "Error" {
		message, _, _ := unstructured.NestedString(u.Object, "status", "message")
		return fmt.Errorf("the Experiment has failed: %s", message)
	}
	return nil
}
