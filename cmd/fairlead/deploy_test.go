package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"
)

// TestDeployedFlags: the arguments of deploy/ are flags of this program. A pod of deploy/ has more time to stop than
// the controller needs with these flags.
func TestDeployedFlags(t *testing.T) {
	t.Parallel()
	pod := deployment(t).Spec.Template.Spec
	args := pod.Containers[0].Args
	cmd, rest, err := newRootCommand(cli.Streams{}).Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || cmd.Name() != "controller" || cmd.Flags().NArg() > 0 {
		t.Fatalf("%q: %v", args, err)
	}
	drain, err := cmd.Flags().GetDuration("drain")
	if err != nil {
		t.Fatal(err)
	}
	const afterwards = 10 * time.Second // for caches, the Lease and Events
	need := drain + controller.StopMargin + afterwards
	if grace := pod.TerminationGracePeriodSeconds; grace == nil || time.Duration(*grace)*time.Second <= need {
		t.Errorf("the grace of %v seconds is not above %v", grace, need)
	}
}

// deployment returns the Deployment of deploy/.
func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{}
	doc, err := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))).Read()
	if err == nil {
		err = yaml.Unmarshal(doc, d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}
