package e2e_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestUpInterrupted: Ctrl-C in a terminal reaches fairlead up and its command. The command gets no second signal while
// it ends by itself. The exit code is that of the command, or 130 if the interrupt ended it.
func TestUpInterrupted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		command string // "": none
		early   bool   // before the control plane is ready
		code    int
	}{
		{
			"the command needs two seconds to end",
			"trap 'exit 9' TERM; trap 'sleep 2; exit 0' INT; echo running; while :; do sleep 0.1; done", false, 0,
		},
		{"the command ends with a code", "trap 'exit 7' INT; echo running; while :; do sleep 0.1; done", false, 7},
		{"the interrupt ends the command", "echo running; exec sleep 600", false, 130},
		{"the command has not begun", "echo running", true, 130},
		{"no command", "", true, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			dir := filepath.Join(t.TempDir(), "data")
			args := []string{"up", "--dir", dir, "--listen", "127.0.0.1:0"}
			if tc.command != "" {
				args = append(args, "--", "sh", "-c", tc.command)
			}
			cmd := exec.CommandContext(ctx, "fairlead", args...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			switch {
			case tc.early:
				(&site{t: t, ctx: ctx}).eventually("its directory", func() bool { _, err := os.Stat(dir); return err == nil })
			case !lines.Scan() || lines.Text() != "running":
				t.Errorf("the command says %q", lines.Text())
			}
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Error(err)
			}
			for lines.Scan() {
				t.Errorf("after the interrupt: %s", lines.Text())
			}
			_ = cmd.Wait() // the exit code says it
			if code := cmd.ProcessState.ExitCode(); code != tc.code || strings.Contains(errs.String(), "fairlead up:") {
				t.Errorf("%v, want exit code %d; it said:\n%s", cmd.ProcessState, tc.code, &errs)
			}
		})
	}
}
