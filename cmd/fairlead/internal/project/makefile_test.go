package project

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fakeGo is a Go command that builds programs which wait for one SIGINT, and then end with the exit code $FAKE_CODE.
const fakeGo = `#!/bin/sh
while [ "$1" != -o ]; do shift; done
mkdir -p "$(dirname "$2")"
cat > "$2" <<'END'
#!/bin/sh
trap 'exit $FAKE_CODE' INT
echo running: "$@"
while :; do sleep 0.05; done
END
chmod 755 "$2"
`

// TestInterruptedMakeUp: Ctrl-C in a terminal reaches make, its shell and fairlead. make up then says nothing, however
// fairlead ends, and make ends by the signal.
func TestInterruptedMakeUp(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"0", "130"} {
		dir := writtenFor(t, "web", "Page")
		goCommand := filepath.Join(dir, "go.sh")
		if err := os.WriteFile(goCommand, []byte(fakeGo), 0o700); err != nil {
			t.Fatal(err)
		}
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := exec.CommandContext(t.Context(), "make", "up", "GO="+goCommand)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, in, in
		cmd.Env = append(os.Environ(), "FAKE_CODE="+code, "MAKEFLAGS=", "MAKELEVEL=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := errors.Join(cmd.Start(), in.Close()); err != nil {
			t.Fatal(err)
		}
		said := readUntil(t, out, "running: up --crds deploy/crds -- ")
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		rest := readUntil(t, out, "")
		err = cmd.Wait()
		exit, _ := errors.AsType[*exec.ExitError](err)
		if exit == nil || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT || strings.Contains(rest, "make:") {
			t.Errorf("after exit code %s of fairlead: %v\n%s%s", code, err, said, rest)
		}
	}
}

// readUntil reads to the end of the line with a text, or all if the text is empty.
func readUntil(t *testing.T, from *os.File, text string) string {
	t.Helper()
	var all bytes.Buffer
	buffer := make([]byte, 1024)
	for {
		n, err := from.Read(buffer)
		all.Write(buffer[:n])
		_, after, found := strings.Cut(all.String(), text)
		if text != "" && found && strings.Contains(after, "\n") || err != nil {
			if text != "" && !found {
				t.Fatalf("%q is not in\n%s", text, &all)
			}
			return all.String()
		}
	}
}
