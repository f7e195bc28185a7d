package cluster

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/internal/child"
)

// process is a running server. It is done when its Wait has returned. Until then the pid is not reused, so a signal
// cannot reach another process.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd

	wanted atomic.Bool // the end is intended

	done chan struct{} // closed when the process has ended and err is set
	err  error
}

// startProcess starts a server that writes its output to the file log and ends with this process.
func startProcess(name, path string, args []string, dir, log string) (*process, error) {
	if err := rotateLog(log); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{name: name, log: log, done: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir, p.cmd.Env = dir, serverEnv()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = child.Attr()

	started := make(chan error)
	go func() {
		defer close(p.done)
		// The kernel's "signal on parent death" concerns the thread that forked, not the process. This goroutine
		// therefore keeps the thread until the server has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := p.cmd.Start(); err != nil {
			started <- err
			return
		}
		if child.NeedsGuard {
			g, err := startGuard(p.cmd.Process.Pid)
			if err != nil {
				_ = p.cmd.Process.Kill()
				_ = p.cmd.Wait()
				started <- err
				return
			}
			defer g.release()
		}
		started <- nil
		p.err = p.cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	return p, nil
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop sends SIGTERM, kills the process if it still runs after grace, and returns when it has ended.
func (p *process) stop(grace time.Duration) {
	p.wanted.Store(true)
	if grace > 0 {
		_ = p.signal(syscall.SIGTERM)
		_ = p.signal(syscall.SIGCONT) // a paused process would not handle SIGTERM
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-p.done:
			return
		case <-t.C:
		}
	}
	_ = p.signal(syscall.SIGKILL)
	<-p.done
}

// failure returns err as a [*ServerError] with the end of the log.
func (p *process) failure(err error) error {
	tail := logTail(p.log)
	if strings.Contains(tail, "address already in use") {
		err = fmt.Errorf("%w: %w", err, errAddressInUse)
	}
	return &ServerError{Server: p.name, Err: err, Log: tail, Path: p.log}
}

// exitFailure returns the error for a process that exited unexpectedly.
func (p *process) exitFailure() error {
	how := "status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return p.failure(fmt.Errorf("%w: %s", ErrServerExited, how))
}

const (
	tailLines = 20
	tailBytes = 8 << 10
	logLimit  = 16 << 20
)

// logTail returns the last lines of a log.
func logTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		_, _ = f.Seek(-tailBytes, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, tailBytes))
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return string(bytes.Join(lines, []byte("\n")))
}

// rotateLog bounds the size of a log that is appended to across starts.
func rotateLog(path string) error {
	if info, err := os.Stat(path); err != nil || info.Size() < logLimit {
		return nil
	}
	return os.Rename(path, path+".old")
}

// serverEnv returns the environment of the servers, without variables that configure this process or a test that runs
// it.
func serverEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "ETCD_") || name == "GODEBUG" || name == "GOMAXPROCS" || name == "GOCOVERDIR" {
			continue
		}
		env = append(env, kv)
	}
	return env
}
