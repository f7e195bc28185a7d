package outboxtest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// CheckExample checks the output of the program outbox: exactly the committed entries are delivered.
func CheckExample(t *testing.T, out string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var first []string
	for _, line := range lines {
		first = append(first, strings.Fields(line)[0])
	}
	if diff := cmp.Diff([]string{"committed", "rolled", "delivered"}, first); diff != "" {
		t.Fatalf("output (-want +got):\n%s\n%s", diff, out)
	}
	if strings.Fields(lines[0])[1] != strings.Fields(lines[2])[1] {
		t.Errorf("delivered is not what was committed:\n%s", out)
	}
}
