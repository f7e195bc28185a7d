package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "signal" { // the program of TestEnter
		fmt.Print(deathSignal())
		return
	}
	os.Exit(m.Run())
}

// deathSignal returns the signal that this process gets when its parent ends.
func deathSignal() (signal int32) {
	if err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0, 0, 0); err != nil {
		return -1
	}
	return signal
}

// account writes the files of a service account.
func account(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// pods returns a Pod that needs the right to mount, and one that does not, as far as this machine allows it.
func pods(t *testing.T) []*Pod {
	t.Helper()
	first, err := New(account(t))
	if err != nil {
		t.Fatal(err)
	}
	if first.user {
		return []*Pod{first}
	}
	return []*Pod{first, {account: first.account, user: true}}
}

// A program finds the files, and otherwise the machine as it is. It has no more rights than without them.
func TestEnter(t *testing.T) {
	status := "grep -E '^(Uid|Gid|CapEff|CapAmb)' /proc/self/status; "
	for _, p := range pods(t) {
		run := func(path string, args ...string) string {
			cmd := exec.Command(path, args...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
			p.Enter(cmd)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
			}
			return string(out)
		}
		plain := func(script string) string {
			out, err := exec.Command("/bin/sh", "-c", script).Output()
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		if got := run("/bin/cat", Dir+"/token"); got != "secret" {
			t.Errorf("the token is %q", got)
		}
		for _, script := range []string{"ls /var/run/ /var", "pwd", "env | grep -c " + variable + " || true", "echo $0"} {
			got := strings.ReplaceAll(run("/bin/sh", "-c", script), "secrets\n", "")
			if want := strings.ReplaceAll(plain(script), "secrets\n", ""); got != want {
				t.Errorf("of %q the output is\n%s, without the files\n%s", script, got, want)
			}
		}
		if got, want := run("/bin/sh", "-c", status), plain(status); got != want && !(p.user && os.Getuid() == 0) {
			t.Errorf("its rights are\n%s, without the files\n%s", got, want)
		}
		if got, want := run(os.Args[0], "signal"), fmt.Sprint(int(syscall.SIGTERM)); got != want {
			t.Errorf("the signal at the end of its parent is %s, want %s", got, want)
		}
	}
	if _, err := os.Stat(Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("outside there is %s, error %v", Dir, err)
	}
}

// What a program returns reaches the caller, also that it does not exist.
func TestExitCode(t *testing.T) {
	for _, p := range pods(t) {
		for path, want := range map[string]int{"/bin/false": 1, "/no/such/program": 126} {
			cmd := exec.Command(path)
			cmd.SysProcAttr = &syscall.SysProcAttr{}
			p.Enter(cmd)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != want || want == 126 && !strings.Contains(string(out), "cannot run "+path) {
				t.Errorf("%s ends with %v: %s", path, err, out)
			}
		}
	}
}
