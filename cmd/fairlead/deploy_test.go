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
)

// TestDeployedFlags: the arguments of deploy/ are those of this program.
func TestDeployedFlags(t *testing.T) {
	t.Parallel()
	args := deployment(t).Spec.Template.Spec.Containers[0].Args
	cmd, rest, err := newRootCommand(streams{}).Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || cmd.Name() != "controller" || cmd.Flags().NArg() > 0 {
		t.Errorf("%q: %v", args, err)
	}
}

// TestGrace: a pod of deploy/ has the time that the controller needs to end in.
func TestGrace(t *testing.T) {
	t.Parallel()
	pod := deployment(t)
	const afterwards = 10 * time.Second // caches, the Lease, Events
	if grace := pod.Spec.Template.Spec.TerminationGracePeriodSeconds; grace == nil ||
		time.Duration(*grace)*time.Second <= defaultDrain+stopMargin+afterwards {
		t.Errorf("the grace of %v seconds is not above %v", grace, defaultDrain+stopMargin+afterwards)
	}
}

// deployment is that of deploy/.
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
