package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/internal/testlog"
)

// TestBlackboxLines: every kind of line has the members that the documentation lists, and no others.
func TestBlackboxLines(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	p := startProgram(t, s.url, "--stats", "--resync", "200ms")
	p.synced()
	s.put("a/one", "second")
	p.event("MODIFIED", "a/one")
	p.event("SYNC", "a/one")
	s.put("a/two", "first")
	p.event("ADDED", "a/two")
	s.putRaw("a/bad", func(version, uid string) string {
		return strings.Replace(wireConfigMap("a/bad", version, uid, ""), `"uid"`, `"labels":1,"uid"`, 1)
	})
	p.await("QUARANTINED", func(l printed) bool { return l.kind == "QUARANTINED" })
	s.remove("a/two")
	p.event("DELETED", "a/two")
	p.finish()
	want := map[string][]string{
		"ADDED":       {"key object resourceVersion type uid", "initial key object resourceVersion type uid"},
		"MODIFIED":    {"key object previousResourceVersion resourceVersion type uid"},
		"DELETED":     {"inferred key object resourceVersion type uid"},
		"SYNC":        {"key object resourceVersion type uid"},
		"SYNCED":      {"count resourceVersion type"},
		"QUARANTINED": {"error key resourceVersion type uid"},
		"STATUS":      {"message phase reason staleSeconds type"},
		"STATS":       {"count elapsedSeconds events type"},
	}
	for _, l := range p.all {
		var names []string
		for name := range l.members {
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Contains(want[l.kind], strings.Join(names, " ")) {
			t.Errorf("line with %v: %v", names, l)
		}
	}
	for kind := range want {
		if !p.printed(kind) {
			t.Errorf("no line %s", kind)
		}
	}
	last := p.all[len(p.all)-1]
	if last.kind != "STATS" || last.number("count") != 1 || last.number("elapsedSeconds") <= 0 {
		t.Errorf("last line: %v", last)
	}
	if before := p.all[len(p.all)-2]; before.text("phase") != "Stopped" {
		t.Errorf("last line but one: %v", before)
	}
}

// TestBlackboxStopped interrupts the program at any time, even while it prints events. As its last line, each scope
// reports that it has stopped.
func TestBlackboxStopped(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	for i := range 300 {
		s.put(fmt.Sprint("a/o", i), "first")
	}
	for i := range 20 {
		var out testlog.Book
		ctx, interrupt := context.WithCancel(t.Context())
		first := &firstWrite{w: &out, then: interrupt, writes: i % 4}
		if code := run(ctx, []string{"watch", watchConfigMaps, "-n", "a", "-n", "b", "--server", s.url, "-o", "json"},
			nil,
			first, &testlog.Book{}); code != cli.ExitOK {
			t.Fatalf("exit code %d", code)
		}
		interrupt()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		stopped := 0
		for _, l := range lines[max(0, len(lines)-2):] {
			if strings.Contains(l, `"phase":"Stopped"`) {
				stopped++
			}
		}
		if stopped != 2 {
			t.Fatalf("the last lines are not those of two stopped scopes: %q", lines[max(0, len(lines)-3):])
		}
	}
}

// firstWrite calls then in the middle of a write, after some writes.
type firstWrite struct {
	w      io.Writer
	then   func()
	writes int
}

func (f *firstWrite) Write(p []byte) (int, error) {
	if f.writes--; f.writes < 0 {
		f.then()
	}
	return f.w.Write(p)
}

// TestBlackboxStale stops the server: the reported staleness grows until the server is back.
func TestBlackboxStale(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	var away atomic.Int32
	var back atomic.Pointer[time.Time] // the first request answered after the outage
	drop := make(chan struct{})
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		switch {
		case r.n == 0:
			_ = s.first(w, r)
			<-drop
			cutOff(w)
		case away.Load() == 1:
			cutOff(w)
		case away.Load() == 2:
			refuse(w, 403, "Forbidden")
		case away.Load() == 3:
			refuse(w, 503, "ServiceUnavailable")
		default:
			if away.Load() == 4 {
				back.CompareAndSwap(nil, new(time.Now()))
			}
			return false
		}
		return true
	}
	p := startProgram(t, s.url)
	p.synced()
	away.Store(1)
	close(drop)
	last := p.status("Disconnected").number("staleSeconds")
	for phase, reason := range []string{"Forbidden", "ServerError"} {
		pause(s, 300*time.Millisecond)
		away.Store(int32(phase) + 2)
		now := p.status(reason).number("staleSeconds")
		if now < last+0.29 {
			t.Errorf("staleSeconds went from %v to %v in 0.3s without an answer of the server", last, now)
		}
		last = now
	}
	away.Store(4)
	l := p.status("Watching")
	if bound := time.Since(*back.Load()).Seconds(); l.number("staleSeconds") > bound {
		t.Errorf("the last answer of the server is %.3fs old: %v", bound, l)
	}
	p.finish()
}

// TestBlackboxScopes watches two namespaces, one of which is refused.
func TestBlackboxScopes(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	s.put("b/two", "first")
	s.put("c/three", "first")
	var granted atomic.Bool
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		if strings.Contains(r.path, "/b/") && !granted.Load() {
			refuse(w, 403, "Forbidden")
			return true
		}
		return false
	}
	p := startProgram(t, s.url, "-na", "-nb", "-na")
	synced, forbidden := false, false
	p.await("SYNCED and Forbidden", func(l printed) bool {
		synced = synced || l.kind == "SYNCED"
		forbidden = forbidden || l.reason == "Forbidden" && l.namespace == "b"
		return synced && forbidden
	})
	granted.Store(true)
	if l := p.event("ADDED", "b/two"); l.members["initial"] != nil {
		t.Errorf("initial after SYNCED: %v", l)
	}
	s.put("a/one", "second")
	s.put("b/two", "second")
	p.event("MODIFIED", "b/two")
	p.finish()
	if n := p.countOf("SYNCED"); n != 1 {
		t.Errorf("%d SYNCED", n)
	}
	if _, is := p.state["c/three"]; is {
		t.Error("an object of a namespace that is not watched")
	}
	recovered := false
	for _, l := range p.all {
		recovered = recovered || l.namespace == "b" && l.reason == "Watching" && l.text("phase") == "Watching"
	}
	if !recovered {
		t.Errorf("no STATUS of the recovery: %v", p.all)
	}
}

// printedAs runs a watch in a format over two objects, of which the second is created later, and returns its output. A
// watch that shows objects ends after the second one, any other after wait.
func printedAs(t *testing.T, format string, shows bool, wait time.Duration) (out, errs *testlog.Book) {
	t.Helper()
	s := newWire(t)
	s.put("a/one", "first")
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	out, errs = &testlog.Book{}, &testlog.Book{}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"watch", watchConfigMaps, "-A", "--stats", "--server", s.url, "-o", format}, nil,
			out, errs)
	}()
	until := func(book *testlog.Book, text string) {
		for !strings.Contains(book.String(), text) && ctx.Err() == nil {
			pause(s, 5*time.Millisecond)
		}
	}
	until(errs, "Watching")
	s.put("a/one", "second")
	s.put("a/two", "first")
	if shows {
		until(out, "two")
	} else {
		pause(s, wait)
	}
	cancel()
	if code := <-ended; code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	return out, errs
}

// TestBlackboxFormats prints in the other formats.
func TestBlackboxFormats(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		format   string
		out, err []string // required parts
	}{
		"Name": {"name", []string{"configmaps/a/one\n", "configmaps/a/two\n"}, []string{"Watching", "2 objects"}},
		"Table": {
			"table",
			[]string{"NAMESPACE", "ADDED", "one", "two", "MODIFIED"},
			[]string{"Watching", "synced: 1 objects", "2 objects"},
		},
		"None": {"none", nil, []string{"Watching", "2 objects"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs *testlog.Book
			for wait := 50 * time.Millisecond; ; wait *= 2 {
				out, errs = printedAs(t, tc.format, tc.out != nil, wait)
				// A watch that prints nothing does not show when it has seen the second object.
				if tc.out != nil || strings.Contains(errs.String(), "2 objects") || wait > 5*time.Second {
					break
				}
			}
			for _, want := range tc.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in %q", want, out.String())
				}
			}
			for _, want := range tc.err {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("no %q in %q", want, errs.String())
				}
			}
			if tc.out == nil && out.String() != "" {
				t.Errorf("something was printed: %q", out.String())
			}
		})
	}
}

// TestBlackboxUnreachable waits for a server that does not listen yet.
func TestBlackboxUnreachable(t *testing.T) {
	t.Parallel()
	address, listen := reserve(t)
	p := startProgram(t, "http://"+address)
	if l := p.status("Disconnected"); l.text("message") == "" || l.text("phase") != "Degraded" {
		t.Errorf("%v", l)
	}
	s := newWire(t)
	s.put("a/one", "first")
	server, listener := &http.Server{Handler: s}, listen()
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	p.synced()
	p.watches()
	p.finish()
}

// reserve takes a port that refuses connections until listen is called. No other process can take it meanwhile.
func reserve(t *testing.T) (address string, listen func() net.Listener) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "listener")
	t.Cleanup(func() { _ = file.Close() }) // the listener has a descriptor of its own
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", bound.(*syscall.SockaddrInet4).Port), func() net.Listener {
		t.Helper()
		if err := syscall.Listen(fd, 128); err != nil {
			t.Fatal(err)
		}
		listener, err := net.FileListener(file)
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
}

// TestBlackboxToken replaces the token in its file.
func TestBlackboxToken(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		if r.token != "new" {
			refuse(w, 401, "Unauthorized")
		}
		return r.token != "new"
	}
	p := startProgram(t, s.url, "--token-file", file)
	p.status("Unauthorized")
	write("new")
	p.synced()
	p.finish()
}

// TestBlackboxMistakes: invalid flags give one line, and exit code 2.
func TestBlackboxMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("no certificate: [and no YAML"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(dir, "good")
	if err := os.WriteFile(good,
		[]byte(
			"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: "+
				"c}}]\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n",
		), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string][]string{
		"NamespacePath":  {"-n", "../../.."},
		"NamespaceSlash": {"-n", "a/b"},
		"NamespaceUpper": {"-n", "Team"},
		"NamespaceEmpty": {"-n", ""},
		"SelectorFlag":   {"-l", "=,="},
		"FieldSelector":  {"--field-selector", "a"},
		"PageSize":       {"--page-size", "0"},
		"PageSizeText":   {"--page-size", "many"},
		"Guard":          {"--bulk-delete-guard", "-1"},
		"Resync":         {"--resync", "-1s"},
		"Silence":        {"--silence-budget", "soon"},
		"Backoff":        {"--backoff-base", "0"},
		"Authority":      {"--server", "https://127.0.0.1:1", "--certificate-authority", bad},
		"Kubeconfig":     {"--kubeconfig", bad},
		"Context":        {"--kubeconfig", good, "--context", "nosuch"},
		"Server":         {"--server", "ftp://127.0.0.1"},
		"ServerPort":     {"--server", "http://127.0.0.1:99999"},
		"Tokens":         {"--token", "a", "--token-file", good},
	}
	for name, flags := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
			defer cancel()
			args := []string{"watch", watchConfigMaps}
			if !slices.Contains(flags, "--server") && !slices.Contains(flags, "--kubeconfig") {
				args = append(args, "--server", "http://127.0.0.1:1")
			}
			var out, errs bytes.Buffer
			code := run(ctx, append(args, flags...), nil, &out, &errs)
			if code != cli.ExitUsage || out.Len() > 0 || strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("exit code %d; stdout %q, stderr %q", code, out.String(), errs.String())
			}
		})
	}
}

// failing accepts n writes.
type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}

// TestBlackboxFullDisk: the program ends when it cannot write its output, even a status.
func TestBlackboxFullDisk(t *testing.T) {
	t.Parallel()
	for n := range 2 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
			defer cancel()
			var errs bytes.Buffer
			var out io.Writer = &failing{left: n}
			code := run(ctx, []string{"watch", watchConfigMaps, "-A", "--server", "http://127.0.0.1:1", "-o", "json"},
				nil, out,
				&errs)
			if code != cli.ExitFailure || !strings.Contains(errs.String(), "the disk is full") || ctx.Err() != nil {
				t.Errorf("exit code %d, stderr %q", code, errs.String())
			}
		})
	}
}
