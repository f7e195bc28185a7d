package hostile_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/child"
)

// buildController builds the program as it is shipped, since the race detector would multiply its memory.
// FAIRLEAD_HOSTILE_CONTROLLER names another program, such as an older version.
func buildController(ctx context.Context, t *testing.T) string {
	t.Helper()
	if program := os.Getenv("FAIRLEAD_HOSTILE_CONTROLLER"); program != "" {
		return program
	}
	program := filepath.Join(t.TempDir(), "fairlead")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/fairlead-io/fairlead/cmd/fairlead")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the controller: %v\n%s", err, out)
	}
	return program
}

// process is a running controller.
type process struct {
	cmd     *exec.Cmd
	address string // of its HTTP API
	ended   chan struct{}

	mu      sync.Mutex
	tail    []string // the last lines of its log
	written int      // bytes of its log
}

const tailLines = 40

// startController starts a controller and returns when it serves its HTTP API. It is killed at the end of the test.
func startController(ctx context.Context, t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{
		cmd:   exec.CommandContext(ctx, program, append([]string{"controller"}, args...)...),
		ended: make(chan struct{}),
	}
	p.cmd.SysProcAttr = child.Attr()
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	started, address := make(chan error, 1), make(chan string, 1)
	go func() {
		runtime.LockOSThread() // see package child
		defer close(p.ended)
		err := p.cmd.Start()
		if started <- err; err != nil {
			return
		}
		p.follow(stderr, address)
		_ = p.cmd.Wait() // its state has the result
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	select {
	case p.address = <-address:
	case <-p.ended:
		t.Fatalf("the controller ended: %v\n%s", p.cmd.ProcessState, p.log())
	case <-ctx.Done():
		t.Fatalf("the controller does not come up\n%s", p.log())
	}
	return p
}

// follow reads the log, whose lines may have any length.
func (p *process) follow(log io.Reader, address chan<- string) {
	lines := bufio.NewReaderSize(log, 64<<10)
	for {
		line, more, err := lines.ReadLine()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.written += len(line)
		if p.tail = append(p.tail, string(line)); len(p.tail) > tailLines {
			p.tail = p.tail[1:]
		}
		p.mu.Unlock()
		if _, at, ok := bytes.Cut(line, []byte("address=")); ok && !more &&
			bytes.Contains(line, []byte("HTTP API is served")) {
			select {
			case address <- string(at):
			default:
			}
		}
	}
}

// log returns the last lines of the log.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.tail, "\n")
}

func (p *process) logged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written
}

// resident returns the resident memory of the process, in bytes; 0 if it has ended.
func (p *process) resident() int {
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)); err == nil {
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				return kilobytes(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			}
		}
		return 0
	}
	out, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(p.cmd.Process.Pid)).Output() // systems without /proc
	if err != nil {
		return 0
	}
	return kilobytes(string(out))
}

// processor has the times for which the threads of a process have run, and waited for a processor. Both are sums over
// all threads.
type processor struct{ ran, waited time.Duration }

// processor returns the times so far; zero if the system does not tell them.
func (p *process) processor() (sum processor) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil {
		return sum
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		var ran, waited int64
		if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
			sum.ran += time.Duration(ran)
			sum.waited += time.Duration(waited)
		}
	}
	return sum
}

// stretch returns how much longer the process took since then than on a machine of its own, at least 1.
func (p processor) stretch(since processor) float64 {
	ran, waited := p.ran-since.ran, p.waited-since.waited
	if ran <= 0 || waited < 0 {
		return 1
	}
	return float64(ran+waited) / float64(ran)
}

func kilobytes(text string) int {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0
	}
	return n << 10
}

// peak samples the memory of the process until the context ends, and returns the maximum.
func (p *process) peak(ctx context.Context) (most int) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		most = max(most, p.resident())
		select {
		case <-tick.C:
		case <-p.ended:
			return most
		case <-ctx.Done():
			return most
		}
	}
}
