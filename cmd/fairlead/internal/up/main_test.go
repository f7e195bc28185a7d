package up

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs a fake controller if the binary is called with that command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "controller" {
		os.Exit(fakeController(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}
