package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStopKillsAnUnresponsiveProcess(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	p, err := startProcess("deaf", "/bin/sh", []string{"-c", `trap "" TERM; echo deaf; while :; do sleep 1; done`}, "/",
		log)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for logTail(log) != "deaf" { // the trap is not set yet
		select {
		case <-p.done:
			t.Fatal(p.exitFailure())
		case <-tick.C:
		}
	}
	p.stop(50 * time.Millisecond)
	if !p.exited() {
		t.Error("the process runs after stop")
	}
}

func TestStartOfMissingBinary(t *testing.T) {
	t.Parallel()
	_, err := startProcess("nothing", "/does/not/exist", nil, "/", filepath.Join(t.TempDir(), "log"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
}

func TestLogTail(t *testing.T) {
	t.Parallel()
	var long, last strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&long, "line %d\n", i)
		if i >= 5000-tailLines {
			fmt.Fprintf(&last, "line %d\n", i)
		}
	}
	path := filepath.Join(t.TempDir(), "log")
	if got := logTail(path); got != "" {
		t.Errorf("tail of a missing log is %q", got)
	}
	if err := os.WriteFile(path, []byte(long.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(last.String()), logTail(path)); diff != "" {
		t.Errorf("tail (-want +got):\n%s", diff)
	}
	if err := os.Truncate(path, logLimit); err != nil {
		t.Fatal(err)
	}
	if err := rotateLog(path); err != nil {
		t.Fatal(err)
	}
	if !missing(path) || missing(path+".old") {
		t.Error("a log at its limit is not renamed")
	}
}

// The guard is for systems without a signal on parent death, but works on all systems.
func TestGuard(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		end    func(*guard)
		killed bool
	}{
		"WeDie": {
			reason: "the end of the pipe means that its only holder has ended",
			end:    func(g *guard) { _ = g.pipe.Close(); _ = g.cmd.Wait() },
			killed: true,
		},
		"ServerEnded": {
			reason: "a released guard must not kill a process that reuses the pid",
			end:    (*guard).release,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := exec.Command("/bin/sleep", "60")
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			g, err := startGuard(server.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			tc.end(g)
			if !tc.killed {
				_ = server.Process.Signal(syscall.SIGTERM)
			}
			err = server.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("server ended with %v", err)
			}
			status, _ := exit.Sys().(syscall.WaitStatus)
			if got := status.Signal() == syscall.SIGKILL; got != tc.killed {
				t.Errorf("%s: killed is %t, want %t", tc.reason, got, tc.killed)
			}
		})
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, _, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	_, holder, err := tryLock(path)
	if !errors.Is(err, syscall.EWOULDBLOCK) || holder != os.Getpid() {
		t.Errorf("a held lock: got holder %d, error %v", holder, err)
	}
	first.unlock()
	second, _, err := tryLock(path)
	if err != nil {
		t.Fatalf("a released lock: %v", err)
	}
	second.unlock()
}

func TestStaleTemporaryDirsAreRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	old := time.Now().Add(-2 * tempMinAge)
	makeDir := func(name string, at time.Time) string {
		dir := filepath.Join(tmp, tempPrefix+name)
		lock := filepath.Join(dir, lockFile)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(lock, []byte(strconv.Itoa(1)), 0o600),
			os.Chtimes(lock, at, at)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dead, young, held := makeDir("dead", old), makeDir("young", time.Now()), makeDir("held", old)
	lock, _, err := tryLock(filepath.Join(held, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.unlock()
	if err := os.Chtimes(filepath.Join(held, lockFile), old, old); err != nil {
		t.Fatal(err)
	}

	fresh, err := newTemporaryDir()
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{dead: false, young: true, held: true, fresh: true} {
		if got := !missing(dir); got != want {
			t.Errorf("%s exists: %t, want %t", filepath.Base(dir), got, want)
		}
	}
}

// TestTrapsInTheTemporaryDirectory: files that other users have put there, or may have put there, are neither changed
// nor removed.
func TestTrapsInTheTemporaryDirectory(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	precious := filepath.Join(t.TempDir(), "precious")
	trap := func(name string, mode os.FileMode) string {
		t.Helper()
		dir := filepath.Join(temp, tempPrefix+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-24 * time.Hour)
	must(os.WriteFile(precious, []byte("content"), 0o600))
	must(os.Chtimes(precious, long, long))
	linked := trap("linked-lock", 0o700)
	must(os.Symlink(precious, filepath.Join(linked, lockFile)))
	must(os.Symlink(filepath.Dir(precious), filepath.Join(temp, tempPrefix+"linked-directory")))
	must(os.WriteFile(filepath.Join(filepath.Dir(precious), lockFile), []byte("a lock of others"), 0o600))
	must(os.Chtimes(filepath.Join(filepath.Dir(precious), lockFile), long, long))
	open := trap("open", 0o777)
	must(os.WriteFile(filepath.Join(open, lockFile), []byte("7"), 0o600))
	must(os.Chtimes(filepath.Join(open, lockFile), long, long))
	stale := trap("stale", 0o700)
	must(os.WriteFile(filepath.Join(stale, lockFile), nil, 0o600))
	must(os.Chtimes(filepath.Join(stale, lockFile), long, long))

	dir, err := newTemporaryDir()
	must(err)
	if !isPrivate(dir) {
		t.Errorf("%s is not private", dir)
	}
	for path, want := range map[string]string{
		precious: "content", filepath.Join(filepath.Dir(precious), lockFile): "a lock of others",
		filepath.Join(open, lockFile): "7",
	} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", path, got, err)
		}
	}
	if _, err := os.Lstat(stale); !os.IsNotExist(err) {
		t.Errorf("the stale directory still exists: %v", err)
	}
	if _, _, err := tryLock(filepath.Join(linked, lockFile)); err == nil {
		t.Error("a link is locked")
	}
}
