package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// BuildTime bounds the duration of Build. A build with the race detector and an empty build cache takes two minutes
// on two cores.
const BuildTime = 10 * time.Minute

// Build builds the main package pkg into a new directory, with the race detector if the caller has it. The flags are
// flags of go build. remove removes the directory.
func Build(pkg, name string, flags ...string) (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "fairlead-program-")
	if err != nil {
		return "", nil, fmt.Errorf("cannot build %s: %w", pkg, err)
	}
	if err := build(pkg, filepath.Join(dir, name), flags); err != nil {
		return "", nil, errors.Join(fmt.Errorf("cannot build %s: %w", pkg, err), os.RemoveAll(dir))
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

func build(pkg, file string, flags []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), BuildTime)
	defer cancel()
	args := []string{"build", "-buildvcs=false", "-o", file}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(append(args, flags...), pkg)...)
	cmd.WaitDelay = 10 * time.Second // a compiler may keep the output open
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not end within %v: %s", strings.Join(cmd.Args, " "), BuildTime, bytes.TrimSpace(out))
	case err != nil:
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
