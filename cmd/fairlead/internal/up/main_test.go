package up

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test binary a controller if it is called like one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "controller" {
		os.Exit(fakeController(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}
