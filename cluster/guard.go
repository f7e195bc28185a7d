package cluster

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// guard kills a process when this process ends, on systems whose kernel cannot. It is a shell that waits for the end of
// a pipe that only this process holds open.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

func startGuard(pid int) (*guard, error) {
	// The shell's read fails when the pipe ends without a line: this process is gone. A line means that pid has ended.
	cmd := exec.Command("/bin/sh", "-c", `read -r _ || kill -KILL "$1"`, "guard", strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to this process group must not reach it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start guard: %w", err)
	}
	return &guard{cmd, pipe}, nil
}

// release ends the guard without an effect on the process.
func (g *guard) release() {
	_, _ = io.WriteString(g.pipe, "ended\n")
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}
