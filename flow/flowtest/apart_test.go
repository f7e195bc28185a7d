package flowtest_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/seed"
)

// apartVariable is an environment variable. When it is set, apart plays in this process.
const apartVariable = "FLOWTEST_APART"

// apart runs play in a process of its own, which is the test binary with only the test t. The race detector keeps about
// 64 kB for each crash until the process exits, see the package comment of flowtest. The tests of this package play
// more than 50,000 crashes, which would need 4 GB in one process. A single play may have some thousands.
func apart(t *testing.T, play func(t *testing.T)) {
	t.Helper()
	played := "played " + t.Name() + "\n"
	if os.Getenv(apartVariable) != "" {
		play(t)
		fmt.Print(played)
		return
	}
	parts := strings.Split(t.Name(), "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	pattern := strings.Join(parts, "/")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern, "-test.count=1", "-test.timeout=10m")
	// By default, the race detector sleeps for a second before the process exits.
	cmd.Env = append(os.Environ(), apartVariable+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		race := ""
		if seed.Race {
			race = " -race"
		}
		t.Errorf("%v\n%s\nto repeat it: %s=1 FAIRLEAD_SEED_BASE='%s' go test%s -count 1 -run '%s' ./flow/flowtest", err, out,
			apartVariable, os.Getenv("FAIRLEAD_SEED_BASE"), race, pattern)
	case !bytes.Contains(out, []byte(played)):
		t.Errorf("the process did not play %s:\n%s", pattern, out)
	}
}
