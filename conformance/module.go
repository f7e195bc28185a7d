package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A workspace is a copy of a subject with the files to build its tests, stock and with the adapter.
type workspace struct {
	subject subject
	options options
	source  string // the copy of the subject
	runtime string // the copy of controller-runtime; equal to source if that is the subject
	modfile string // its go.mod with our modules added; go.sum is next to it
	reports string
}

// prepare copies the sources of a subject and of controller-runtime, and writes a go.mod for both modes. All module
// versions are the same in both modes.
func prepare(ctx context.Context, o options, s subject) (*workspace, error) {
	w := &workspace{subject: s, options: o}
	var err error
	if w.source, err = sources(ctx, o.dir, s.module, s.version); err != nil {
		return nil, err
	}
	if w.runtime, err = sources(ctx, o.dir, runtimeModule, runtimeVersion); err != nil {
		return nil, err
	}
	base := filepath.Join(o.dir, "work", filepath.Base(w.source))
	w.reports, w.modfile = filepath.Join(base, "reports"), filepath.Join(base, "go.mod")
	if err := os.MkdirAll(w.reports, 0o755); err != nil {
		return nil, err
	}
	return w, w.writeModfile(ctx)
}

func (w *workspace) writeModfile(ctx context.Context) error {
	original, err := os.ReadFile(filepath.Join(w.source, "go.mod"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.modfile, original, 0o644); err != nil {
		return err
	}
	ours := filepath.Join(w.options.repository, "controllerruntime")
	var sums []byte
	for _, dir := range []string{w.source, w.runtime, ours} {
		sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		if err != nil {
			return err
		}
		sums = append(sums, sum...)
	}
	if err := os.WriteFile(strings.TrimSuffix(w.modfile, ".mod")+".sum", sums, 0o644); err != nil {
		return err
	}
	edit := []string{
		"mod", "edit",
		"-require=" + library + "@v0.0.0", "-replace=" + library + "=" + w.options.repository,
		"-require=" + adapterModule + "@v0.0.0", "-replace=" + adapterModule + "=" + ours,
	}
	if w.subject.module != runtimeModule {
		edit = append(edit, "-require="+runtimeModule+"@"+runtimeVersion, "-replace="+runtimeModule+"="+w.runtime)
		staged, err := w.staged(ctx, ours)
		if err != nil {
			return err
		}
		edit = append(edit, staged...)
	}
	_, err = goCommand(ctx, w.source, append(edit, w.modfile)...)
	return err
}

// staged returns edits of go.mod that raise the Kubernetes modules of a subject to the version of client-go that our
// modules require. These modules must have the same version.
func (w *workspace) staged(ctx context.Context, ours string) (edit []string, err error) {
	const clientGo = "k8s.io/client-go"
	theirs, err := requirements(ctx, w.source)
	if err != nil {
		return nil, err
	}
	own, err := requirements(ctx, ours)
	if err != nil {
		return nil, err
	}
	minor := func(version string) string { return version[:strings.LastIndex(version, ".")+1] }
	for module, version := range theirs {
		if strings.HasPrefix(module, "k8s.io/") && minor(version) == minor(theirs[clientGo]) {
			edit = append(edit, "-require="+module+"@"+own[clientGo])
		}
	}
	return edit, nil
}

// requirements returns the required versions in the go.mod of a directory.
func requirements(ctx context.Context, dir string) (map[string]string, error) {
	out, err := goCommand(ctx, dir, "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return nil, fmt.Errorf("cannot read what go mod edit says of %s: %w", dir, err)
	}
	versions := map[string]string{}
	for _, r := range file.Require {
		versions[r.Path] = r.Version
	}
	return versions, nil
}

// sources returns the directory of a copy of a module from the module proxy.
func sources(ctx context.Context, dir, module, version string) (string, error) {
	to := filepath.Join(dir, "sources", strings.ReplaceAll(module, "/", "-")+"@"+version)
	if _, err := os.Stat(to); err == nil {
		return to, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	out, err := goCommand(ctx, os.TempDir(), "mod", "download", "-json", module+"@"+version)
	if err != nil {
		return "", err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return "", fmt.Errorf("cannot read what go mod download says of %s: %w", module, err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	// Copy to a temporary directory first, so that an interrupted copy is not mistaken for a complete one.
	half, err := os.MkdirTemp(filepath.Dir(to), ".copy-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(half) //nolint:errcheck // a failed copy is reported below
	if err := os.CopyFS(filepath.Join(half, "module"), os.DirFS(downloaded.Dir)); err != nil {
		return "", fmt.Errorf("cannot copy %s: %w", module, err)
	}
	if err := os.Rename(filepath.Join(half, "module"), to); err != nil {
		return "", err
	}
	return to, nil
}

// goCommand runs the go command and returns its standard output. An error contains its standard error.
func goCommand(ctx context.Context, dir string, arguments ...string) ([]byte, error) {
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &complaints
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cannot run go %s: %w\n%s", strings.Join(arguments, " "), err, complaints.Bytes())
	}
	return out.Bytes(), nil
}
