package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

const (
	// reuse is how many schedules a child plays. A subject may leave something behind in each.
	reuse = 1000
	// limit is how long a schedule may take in real time.
	limit = 2 * time.Minute
	// exitPanic is the exit code of a Go program that panics.
	exitPanic = 2
	// tailSize is how much of the output of a child is kept.
	tailSize = 64 << 10
)

// Pool plays schedules in child processes. It implements engine.Driver.
type Pool struct {
	test, id string
	idle     chan *child // nil elements are places without a child
	size     int
}

// NewPool returns a pool of n children, which it starts when they are needed. test is the name of the test that a child
// runs, and id tells its calls of Serve apart.
func NewPool(test, id string, n int) *Pool {
	p := &Pool{test: test, id: id, idle: make(chan *child, n), size: n}
	for range n {
		p.idle <- nil
	}
	return p
}

// Close ends all children. No Play may be in progress.
func (p *Pool) Close() {
	for range p.size {
		if c := <-p.idle; c != nil {
			c.end()
		}
	}
}

// Play plays a schedule in a child.
func (p *Pool) Play(ctx context.Context, plan engine.Plan, want *engine.Want) (*engine.Outcome, error) {
	var c *child
	select {
	case c = <-p.idle:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var err error
	if c == nil {
		if c, err = p.start(); err != nil {
			p.idle <- nil
			return nil, err
		}
	}
	out, err := c.play(ctx, order{Plan: plan, Want: want})
	var own *playError
	fails := out != nil && len(plan.Faults) == 0 && (out.Stuck != nil || !out.Quiet)
	if c.played++; c.played >= reuse || c.last || fails || err != nil && !errors.As(err, &own) {
		c.end()
		if fails {
			out.Output = c.tail.String()
		}
		c = nil
	}
	p.idle <- c
	return out, err
}

// child is one process. Only one goroutine uses it at a time.
type child struct {
	cmd    *exec.Cmd
	plans  *os.File
	lines  *bufio.Reader
	out    *os.File
	tail   *tail
	played int
	last   bool         // it has ended after its last plan
	want   *engine.Want // that it was sent last
}

func (p *Pool) start() (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the test binary: %w", err)
	}
	planR, planW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, planR.Close(), planW.Close())
	}
	c := &child{plans: planW, out: outR, lines: bufio.NewReader(outR), tail: &tail{}}
	c.cmd = exec.Command(program, "-test.run="+pattern(p.test), "-test.count=1", "-test.timeout=0", "-test.cpu=1")
	c.cmd.Env = append(os.Environ(), variable+"="+p.id)
	c.cmd.ExtraFiles = []*os.File{planR, outW}
	c.cmd.Stdout, c.cmd.Stderr = c.tail, c.tail
	err = c.cmd.Start()
	_, _ = planR.Close(), outW.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start the test binary: %w", err), planW.Close(), outR.Close())
	}
	return c, nil
}

// pattern returns the regular expression that selects exactly one test or subtest.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// playError is the error of a schedule in a child that goes on.
type playError struct{ text string }

func (e *playError) Error() string { return e.text }

func (c *child) play(ctx context.Context, o order) (*engine.Outcome, error) {
	if o.Same = o.Want == c.want; o.Same {
		o.Want = nil
	} else {
		c.want = o.Want
	}
	timer := time.AfterFunc(limit, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if _, err = c.plans.Write(append(b, '\n')); err != nil {
		return c.died(err, o.Plan)
	}
	line, err := c.lines.ReadBytes('\n')
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return c.died(err, o.Plan)
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, fmt.Errorf("cannot read the outcome of a schedule: %w", err)
	}
	c.last = r.Last
	if r.Error != "" {
		return r.Outcome, &playError{Explain(r.Error)}
	}
	return r.Outcome, nil
}

// died returns what a schedule led to if the child has ended in it. A panic of the subject is an outcome.
func (c *child) died(err error, p engine.Plan) (*engine.Outcome, error) {
	c.last = true
	c.wait()
	text := c.tail.String()
	if c.cmd.ProcessState.ExitCode() == exitPanic && isPanic(text) {
		return &engine.Outcome{Exits: []string{Explain(text)}, Reached: slices.Repeat([]bool{true}, len(p.Faults))}, nil
	}
	if strings.TrimSpace(text) == "" {
		text = err.Error()
	}
	return nil, errors.New(Explain("the process of the test ended: " + c.cmd.ProcessState.String() + "\n" + text))
}

// end ends the child and waits for it.
func (c *child) end() {
	_ = c.plans.Close()
	c.wait()
	_ = c.out.Close()
}

// wait waits until the process has ended, and kills it if that takes too long.
func (c *child) wait() {
	timer := time.AfterFunc(5*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	_ = c.cmd.Wait()
}

// tail keeps the end of what a child prints. It is safe for concurrent use.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailSize {
		t.b = append(t.b[:0], t.b[len(t.b)-tailSize:]...)
	}
	return len(p), nil
}

// String returns what is kept: from the panic on if there is one, and else up to the step that was not reached.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.b
	if len(b) > tailSize {
		b = b[len(b)-tailSize:]
	}
	for _, begin := range []string{"panic: ", "fatal error: "} {
		if i := bytes.Index(b, []byte(begin)); i >= 0 {
			b = b[i:]
			break
		}
	}
	if i := bytes.LastIndex(b, []byte(gaveUp)); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
