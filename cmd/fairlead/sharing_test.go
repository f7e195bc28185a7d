package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

// TestSharedMistakes: contradictory flags are reported in one line, before any request.
func TestSharedMistakes(t *testing.T) {
	t.Parallel()
	controller := []string{
		"controller", "--kubeconfig", noServer(t), "--namespace", "default", "--listen", "127.0.0.1:0",
		"--insecure-no-auth",
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"Empty":     {[]string{"--shards="}, `"" is not namespace/name`},
		"SlotsOnly": {[]string{"--shard-slots", "8"}, "needs --shards"},
		"Both":      {[]string{"--shards", "--leader-elect"}, "exclude each other"},
		"Namespace": {[]string{"--shards=elsewhere/group"}, "has to be in the system namespace"},
		"Name":      {[]string{"--shards=A_B"}, "is not namespace/name"},
		"Slots":     {[]string{"--shards", "--shard-slots", "3"}, "want a power of two"},
		"Lease":     {[]string{"--shards=fairlead-controller"}, "that is the Lease of --leader-elect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := run(t.Context(), append(slices.Clone(controller), tc.args...), strings.NewReader(""), &out, &errs)
			if lines := strings.Split(strings.TrimSpace(errs.String()), "\n"); code != cli.ExitUsage ||
				len(lines) != 1 ||
				!strings.Contains(lines[0], tc.want) {
				t.Errorf("exit code %d\n%s", code, &errs)
			}
		})
	}
}
