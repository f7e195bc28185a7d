package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/internal/testlog"
)

// program is a running fairlead watch -o json. Every line is checked against the rules of the stream when it is read.
type program struct {
	t     *testing.T
	lines chan printed
	all   []printed
	state map[string]printed // result of the events
	stop  context.CancelFunc
	ended chan int
	errs  *testlog.Book
	limit context.Context
}

// printed is one line: its members as printed, and the most used ones decoded.
type printed struct {
	members         map[string]json.RawMessage
	kind, key, uid  string
	version, reason string
	namespace       string
	at              time.Time
}

func (l printed) text(member string) string {
	var s string
	_ = json.Unmarshal(l.members[member], &s) // another type counts as empty
	return s
}

func (l printed) number(member string) float64 {
	var n float64
	_ = json.Unmarshal(l.members[member], &n)
	return n
}

// value is data.value of the object.
func (l printed) value() string {
	var o struct{ Data struct{ Value string } }
	_ = json.Unmarshal(l.members["object"], &o)
	return o.Data.Value
}

func (l printed) String() string {
	var b strings.Builder
	for k, v := range l.members {
		if len(v) > 120 {
			v = v[:120]
		}
		b.WriteString(k + "=" + string(v) + " ")
	}
	return b.String()
}

// startProgram runs fairlead watch of all config maps with short waits. flags override the defaults.
func startProgram(t *testing.T, server string, flags ...string) *program {
	t.Helper()
	args := []string{
		"watch", watchConfigMaps, "--server", server, "-o", "json", "--backoff-base", "5ms", "--backoff-cap",
		"40ms",
	}
	args = append(args, flags...)
	if !slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "-n") }) {
		args = append(args, "-A")
	}
	ctx, stop := context.WithCancel(t.Context())
	limit, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	reader, writer := io.Pipe()
	p := &program{
		t: t, lines: make(chan printed, 4096), state: map[string]printed{}, stop: stop, ended: make(chan int, 1),
		errs: &testlog.Book{}, limit: limit,
	}
	go func() {
		code := run(ctx, args, strings.NewReader(""), writer, p.errs)
		_ = writer.Close() // a pipe does not fail
		p.ended <- code
	}()
	go func() {
		defer close(p.lines)
		p.read(reader)
	}()
	t.Cleanup(func() {
		stop()
		cancel()
		for range p.lines {
		}
	})
	return p
}

func (p *program) read(r io.Reader) {
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		raw, err := lines.ReadBytes('\n')
		if err != nil {
			if len(raw) > 0 {
				p.t.Errorf("last line is not complete: %q", raw)
			}
			return
		}
		l := printed{at: time.Now()}
		if err := json.Unmarshal(raw, &l.members); err != nil {
			p.t.Errorf("line is not JSON: %v: %.300q", err, raw)
			continue
		}
		l.kind, l.key, l.uid, l.version = l.text("type"), l.text("key"), l.text("uid"), l.text("resourceVersion")
		l.reason, l.namespace = l.text("reason"), l.text("namespace")
		p.lines <- l
	}
}

// fold applies an event to the state and checks that it follows from the previous ones.
func (p *program) fold(l printed) {
	was, known := p.state[l.key]
	switch l.kind {
	case "ADDED":
		if known {
			p.t.Errorf("ADDED of an object that is shown: %v", l)
		}
		p.state[l.key] = l
	case "MODIFIED":
		if !known || was.uid != l.uid || was.version != l.text("previousResourceVersion") {
			p.t.Errorf("MODIFIED does not follow: %v\nbefore: %v", l, was)
		}
		old, _ := strconv.Atoi(was.version)
		if now, err := strconv.Atoi(l.version); err == nil && now <= old && !p.printed("EPOCH") {
			p.t.Errorf("the version decreases from %d: %v", old, l)
		}
		p.state[l.key] = l
	case "DELETED":
		if !known || was.uid != l.uid {
			p.t.Errorf("DELETED does not follow: %v\nbefore: %v", l, was)
		}
		delete(p.state, l.key)
	}
}

func (p *program) printed(kind string) bool { return p.countOf(kind) > 0 }

func (p *program) countOf(kind string) (n int) {
	for _, l := range p.all {
		if l.kind == kind {
			n++
		}
	}
	return n
}

// await reads until a line matches.
func (p *program) await(what string, ok func(printed) bool) printed {
	p.t.Helper()
	for {
		select {
		case l, more := <-p.lines:
			if !more {
				p.t.Fatalf("ended before %s; stderr: %s", what, p.errs)
			}
			p.all = append(p.all, l)
			p.fold(l)
			if ok(l) {
				return l
			}
		case <-p.limit.Done():
			p.t.Fatalf("no %s; got %v", what, p.all[max(0, len(p.all)-30):])
		}
	}
}

func (p *program) event(kind, key string) printed {
	p.t.Helper()
	return p.await(kind+" "+key, func(l printed) bool { return l.kind == kind && l.key == key })
}

func (p *program) synced() printed {
	p.t.Helper()
	return p.await("SYNCED", func(l printed) bool { return l.kind == "SYNCED" })
}

// until polls a condition that only the server can check.
func (p *program) until(what string, holds func() bool) {
	p.t.Helper()
	until(p.limit, p.t, what, holds)
}

func until(ctx context.Context, t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never %s", what)
		}
	}
}

// watches reads until the last STATUS of the scope is Watching.
func (p *program) watches() {
	p.t.Helper()
	for _, l := range slices.Backward(p.all) {
		if l.kind == "STATUS" {
			if l.reason == "Watching" {
				return
			}
			break
		}
	}
	p.status("Watching")
}

// degraded returns the first STATUS with a reason for a problem.
func (p *program) degraded(reason string) (printed, bool) {
	for _, l := range p.all {
		if l.kind == "STATUS" && l.reason == reason && l.text("phase") == "Degraded" && l.text("message") != "" {
			return l, true
		}
	}
	return printed{}, false
}

func (p *program) status(reason string) printed {
	p.t.Helper()
	return p.await("STATUS "+reason, func(l printed) bool { return l.kind == "STATUS" && l.reason == reason })
}

// agrees reads until the result of the events equals the state of the server.
func (p *program) agrees(s *wire) {
	p.t.Helper()
	s.mu.Lock()
	want := map[string]string{}
	for k, o := range s.objects {
		want[k] = strconv.Itoa(o.version)
	}
	s.mu.Unlock()
	same := func() bool {
		got := map[string]string{}
		for k, l := range p.state {
			got[k] = l.version
		}
		return maps.Equal(got, want)
	}
	if !same() {
		p.await("the state of the server", func(printed) bool { return same() })
	}
}

// finish interrupts the program and expects a successful end.
func (p *program) finish() {
	p.t.Helper()
	p.stop()
	for l := range p.lines {
		p.all = append(p.all, l)
		p.fold(l)
	}
	if code := <-p.ended; code != cli.ExitOK {
		p.t.Errorf("exit code %d, want 0; stderr: %s", code, p.errs)
	}
}

// awaitProblem reads until a STATUS has a reason, and expects a message about the problem.
func (p *program) awaitProblem(reason string) {
	p.t.Helper()
	is := func(l printed) bool { return l.kind == "STATUS" && l.reason == reason }
	if !slices.ContainsFunc(p.all, is) {
		p.await("STATUS "+reason, is)
	}
	for _, l := range p.all {
		if is(l) && (l.text("message") == "" || l.text("phase") == "Watching") {
			p.t.Errorf("STATUS does not name the problem: %v", l)
		}
	}
}
