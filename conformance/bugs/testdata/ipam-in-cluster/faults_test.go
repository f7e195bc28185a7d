// Package bug runs the program of the operator.
package bug

import (
	"errors"
	"flag"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/simulate"
)

var until = flag.Duration("for", 5*time.Minute, "begin no new schedule after this time")

func TestFaults(t *testing.T) {
	simulate.Test(t, simulate.Subject{CRDs: "crds"},
		simulate.Command("./operator", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-port=0"),
		simulate.Apply("pool.yaml"),
		simulate.Apply("first.yaml"),
		simulate.Await(answered("first")),
		simulate.Apply("second.yaml"),
		simulate.Await(answered("second")),
		simulate.Until(*until),
	)
}

// answered returns the condition that the claim has an address.
func answered(claim string) func(simulate.World) error {
	return func(w simulate.World) error {
		u := w.Object("ipaddressclaims/" + claim)
		if u == nil {
			return errors.New("there is no claim")
		}
		if name, _, _ := unstructured.NestedString(u.Object, "status", "addressRef", "name"); name == "" {
			return errors.New("the claim has no address")
		}
		return nil
	}
}
