package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// eventually polls a condition of another process, which sends no signal.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(testlimit.Wait)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// ends fails the test if stop does not return.
func ends(t *testing.T, stop func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop()
	}()
	select {
	case <-done:
	case <-time.After(testlimit.Wait):
		t.Fatal("Stop does not return")
	}
}

// running reports whether a process exists and has not ended. A container may have no process that collects exit
// statuses.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err) || !hasProc()
	}
	_, state, _ := strings.Cut(string(b), ") ") // the command's name may have spaces, but ends with the last bracket
	return !strings.HasPrefix(state, "Z")
}

func hasProc() bool {
	_, err := os.Stat("/proc/self")
	return err == nil
}
