package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/internal/child"
	"github.com/fairlead-io/fairlead/internal/source"
)

// member is the parent's handle of a replica.
type member struct {
	cmd  *exec.Cmd
	in   *json.Encoder
	out  *json.Decoder
	pipe io.Closer
	done chan struct{} // closed when the process has ended and err is set
	err  error

	before int64           // resident bytes before the start
	last   source.Counters // at the last request
}

// newMember starts a process, which waits for the command to start. The process is killed when ctx ends or when this
// process ends.
func newMember(ctx context.Context, t task) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	m := &member{cmd: exec.CommandContext(ctx, self), done: make(chan struct{})}
	m.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	m.cmd.Stderr, m.cmd.SysProcAttr = os.Stderr, child.Attr()
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Wait would close a StdoutPipe during a read.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	m.cmd.Stdout, m.pipe = write, read
	m.in, m.out = json.NewEncoder(in), json.NewDecoder(read)
	started := make(chan error)
	go func() {
		defer close(m.done)
		runtime.LockOSThread() // see package child
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		_ = write.Close()
		started <- err
		if err == nil {
			m.err = m.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		_ = read.Close()
		return nil, err
	}
	s, err := m.ask("rest")
	if err != nil {
		m.kill()
		return nil, err
	}
	m.before = s.Resident
	return m, nil
}

// ask sends a line and returns the answer. It fails when the process ends.
func (m *member) ask(what string) (s stats, err error) {
	if err = m.in.Encode(what); err == nil {
		err = m.out.Decode(&s)
	}
	if err != nil {
		err = fmt.Errorf("cannot ask replica %d: %w", m.cmd.Process.Pid, err)
		return s, err
	}
	m.last = s.Counters
	return s, nil
}

func (m *member) begin() error {
	_, err := m.ask("start")
	return err
}

func (m *member) signal(s syscall.Signal) error { return m.cmd.Process.Signal(s) }

// gone waits until the process has ended without an error.
func (m *member) gone(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-m.done:
		_ = m.pipe.Close()
		return m.err
	case <-timer.C:
		return errors.New("cannot wait for a replica to end")
	}
}

// kill kills the process, even if it is stopped, and waits until it has ended.
func (m *member) kill() {
	_ = m.cmd.Process.Kill()
	<-m.done
	_ = m.pipe.Close()
}
