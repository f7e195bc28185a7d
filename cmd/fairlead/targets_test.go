package main

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	testprogram "github.com/fairlead-io/fairlead/internal/testbed/program"
)

// TestWrongTargets: invalid flags are reported before any request.
func TestWrongTargets(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--deny-target", "http://x"},
		{"--allow-target", "10.0.0.0/99"},
		{"--credentials", "some"},
		{"--system-namespace", "A_b"},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), append([]string{"controller", "--kubeconfig", noServer(t)}, args...),
			strings.NewReader(""),
			&out, &errs)
		if code != cli.ExitUsage || !strings.Contains(errs.String(), args[1]) {
			t.Errorf("%q: %d %s", args, code, errs.String())
		}
	}
}

// noServer returns a kubeconfig of an API server that does not answer.
func noServer(t *testing.T) string {
	t.Helper()
	return testprogram.Kubeconfig(t, &rest.Config{Host: "http://127.0.0.1:1"}, "")
}
