package project

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// fakeCode is the environment variable that makes the test program a fairlead that ends with this exit code at SIGINT.
// A shell script would not do: a shell cannot handle a signal that is ignored when it starts, as in a background job.
const fakeCode = "FAIRLEAD_FAKE_CODE"

// fakeFairlead writes a line, and returns the exit code after an interrupt.
func fakeFairlead(code string) int {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	fmt.Println("running")
	<-interrupts
	exit, err := strconv.Atoi(code)
	if err != nil {
		return 99
	}
	return exit
}

// TestInterruptedMakeUp: Ctrl-C in a terminal reaches the shell of make up and fairlead. It is a success without
// output, whichever way fairlead ends. Another exit code is a failure.
//
// The test runs the command that make up would run. With make itself it would depend on whether make or fairlead
// handles the signal first.
func TestInterruptedMakeUp(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join("..", "..", "..", "..")
	for name, dir := range map[string]string{"GeneratedProject": writtenFor(t, "web", "Page"), "Repository": root} {
		for code, want := range map[string]int{"0": 0, "130": 0, "3": 3} {
			t.Run(fmt.Sprint(name, code), func(t *testing.T) {
				t.Parallel()
				bin := t.TempDir()
				if err := os.MkdirAll(filepath.Join(bin, "tools"), 0o755); err != nil {
					t.Fatal(err)
				}
				for _, file := range []string{"fairlead", filepath.Join("tools", "fairlead")} {
					if err := os.Symlink(program, filepath.Join(bin, file)); err != nil {
						t.Fatal(err)
					}
				}
				out, exit := interrupted(t, commandOf(t, dir, bin), code)
				if out != "" || exit != want {
					t.Errorf("the exit code is %d, want %d; the output is %q", exit, want, out)
				}
			})
		}
	}
}

// commandOf returns the last command of make up.
func commandOf(t *testing.T, dir, bin string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-n", "up", "BIN="+bin)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	all, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(all)), "\n")
	last := lines[len(lines)-1]
	if !strings.Contains(last, bin) {
		t.Fatalf("the last command is not that of fairlead: %s", last)
	}
	return last
}

// interrupted runs a command of a Makefile, and sends SIGINT to it and its children when fairlead runs. It returns what
// the command writes after that.
func interrupted(t *testing.T, command, code string) (out string, exit int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	cmd.Env = append(os.Environ(), fakeCode+"="+code)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewReader(stdout)
	if first, err := read.ReadString('\n'); first != "running\n" {
		t.Fatalf("fairlead does not run: %q (%v)", first, err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if e, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ok && !e.Exited() {
		t.Fatalf("it ended with %v", err)
	}
	return string(rest), cmd.ProcessState.ExitCode()
}
