package flowtest_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// apartVariable is an environment variable. When it is set, apart plays in this process, and the tests play all that
// -run selects, as with FAIRLEAD_SEED_BASE.
const apartVariable = "FLOWTEST_APART"

// apart runs play in a process of its own, which is the test binary with only the test t. The race detector keeps about
// 64 kB for each crash until the process exits, see the package comment of flowtest. The tests of this package play
// more than 200,000 crashes, which would need 14 GB in one process. A single play may have some thousands.
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
		t.Errorf("%v\n%s\nto repeat it: %s=1 go test -count 1 -run '%s' ./flow/flowtest", err, out, apartVariable,
			pattern)
	case !bytes.Contains(out, []byte(played)):
		t.Errorf("the process did not play %s:\n%s", pattern, out)
	}
}

// everything says whether a test plays all its cases. Without a base for seeds, as in make test, a long test plays a
// part of them.
func everything() bool {
	return os.Getenv("FAIRLEAD_SEED_BASE") != "" || os.Getenv(apartVariable) != ""
}
