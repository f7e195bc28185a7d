package project

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// libraryModule is the path of Fairlead's module.
const libraryModule = "github.com/fairlead-io/fairlead"

// library is the source of Fairlead for a project.
type library struct {
	version  string
	dir      string // instead of the version; empty: none
	language string // the minimum version of Go
}

var goLine = regexp.MustCompile(`(?m)^go ([0-9.]+)$`)

// oldest is the initial Go version in go.mod. The Go command raises it to the version that the library requires.
const oldest = "1.26.0"

// unreleased is the version in go.mod if a directory replaces the module.
const unreleased = "v0.0.0"

// findLibrary returns the library in a directory, or that of this program if dir is empty.
func findLibrary(dir string) (library, error) {
	if dir != "" {
		return libraryIn(dir)
	}
	if version := released(); version != "" {
		return library{version: version, language: oldest}, nil
	}
	_, here, _, _ := runtime.Caller(0)
	for at := filepath.Dir(here); filepath.IsAbs(at) && at != filepath.Dir(at); at = filepath.Dir(at) {
		if lib, err := libraryIn(at); err == nil {
			return lib, nil
		}
	}
	return library{}, fmt.Errorf("cannot tell which version of Fairlead to use: %w: "+
		"this program is of no release, and was built in a directory that is not there any more; "+
		"name one with the source", ErrLibrary)
}

// released returns the module version that this program was built from, or "" if it was built from a checkout.
func released() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == libraryModule && m.Sum != "" && m.Replace == nil {
			return m.Version
		}
	}
	return ""
}

// libraryIn returns the library in a directory.
func libraryIn(dir string) (library, error) {
	no := func(why error) (library, error) {
		return library{}, fmt.Errorf("cannot use library %q: %w: %w", dir, ErrLibrary, why)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return no(err)
	}
	mod, err := os.ReadFile(filepath.Join(abs, "go.mod"))
	if err != nil {
		return no(err)
	}
	first, _, _ := bytes.Cut(mod, []byte("\n"))
	language := goLine.FindSubmatch(mod)
	if strings.TrimSpace(string(first)) != "module "+libraryModule || language == nil {
		return no(errors.New("its go.mod is another one's"))
	}
	return library{version: unreleased, dir: abs, language: string(language[1])}, nil
}

// tidy runs go mod tidy, which completes go.mod and writes go.sum.
func tidy(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "tidy")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "PWD="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot complete go.mod: %w: %w\n%s", ErrTidy, err, bytes.TrimSpace(out))
	}
	return nil
}
