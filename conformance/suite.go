package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/child"
)

// A mode is the cache and client that a suite runs with.
type mode int

const (
	stock mode = iota
	adapter
)

func (m mode) String() string { return [...]string{"stock", "adapter"}[m] }

// A binary is the test binary of one package.
type binary struct {
	path    string
	dir     string          // working directory of the tests
	ginkgo  bool            // accepts ginkgo's flags
	entries map[string]bool // test functions that only run ginkgo's specs
}

// suite builds the tests of a package in each mode, runs them in interleaved rounds, and returns the outcomes.
func (w *workspace) suite(ctx context.Context, pkg, assets string) (*row, error) {
	name := w.subject.name(pkg)
	r := &row{name: name, quiet: slices.Contains(w.subject.quiet, pkg)}
	binaries := map[mode]*binary{}
	for _, m := range w.options.modes {
		progress("build %s, %v", name, m)
		b, err := w.build(ctx, pkg, m)
		if err != nil {
			return nil, err
		}
		binaries[m] = b
	}
	for i := range w.options.runs {
		for _, m := range w.options.modes {
			result, err := w.run(ctx, binaries[m], i+1, assets)
			if err != nil {
				return nil, err
			}
			r.results[m] = append(r.results[m], result)
			progress("%s, %v, run %d: %s in %.0f s", name, m, i+1, result.summary(), result.took.Seconds())
		}
	}
	return r, nil
}

func (w *workspace) build(ctx context.Context, pkg string, m mode) (*binary, error) {
	_, files, err := testFiles(filepath.Join(w.source, pkg))
	if err != nil {
		return nil, err
	}
	b := &binary{
		path:    filepath.Join(w.reports, strings.ReplaceAll(path.Join("suite", pkg), "/", "-")+"."+m.String()+".test"),
		dir:     filepath.Join(w.source, pkg),
		entries: map[string]bool{},
	}
	for _, file := range files {
		b.look(file)
	}
	arguments := []string{"test", "-c", "-mod=mod", "-modfile=" + w.modfile, "-o", b.path}
	if w.options.race {
		arguments = append(arguments, "-race")
	}
	overlay, err := w.overlay(pkg, m)
	if err != nil {
		return nil, err
	}
	if overlay != "" {
		arguments = append(arguments, "-overlay="+overlay)
	}
	_, err = goCommand(ctx, w.source, append(arguments, "./"+pkg)...)
	return b, err
}

// look records whether a test file uses ginkgo, and which of its functions run ginkgo's specs.
func (b *binary) look(file *ast.File) {
	for _, imported := range file.Imports {
		b.ginkgo = b.ginkgo || strings.HasPrefix(imported.Path.Value, `"github.com/onsi/ginkgo/`)
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Recv != nil || function.Body == nil {
			continue
		}
		ast.Inspect(function.Body, func(n ast.Node) bool {
			if used, ok := n.(*ast.Ident); ok && used.Name == "RunSpecs" {
				b.entries[function.Name.Name] = true
			}
			return true
		})
	}
}

// run runs a test binary once.
func (w *workspace) run(ctx context.Context, b *binary, seed int, assets string) (*result, error) {
	report, opened := strings.TrimSuffix(b.path, ".test")+".json", strings.TrimSuffix(b.path, ".test")+".opened"
	for _, old := range []string{report, opened} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	arguments := []string{"-test.v", "-test.timeout=20m"}
	if b.ginkgo {
		// The same seed gives the same order of specs in both modes.
		arguments = append(arguments, fmt.Sprint("-ginkgo.seed=", seed), "-ginkgo.json-report="+report,
			"-ginkgo.timeout=18m") // before -test.timeout, so that ginkgo stops its servers and writes the report
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, b.path, arguments...)
	cmd.Dir, cmd.SysProcAttr = b.dir, child.Attr()
	cmd.Stdout = io.Writer(&out)
	if w.options.output != nil {
		cmd.Stdout = io.MultiWriter(&out, w.options.output)
	}
	cmd.Stderr = cmd.Stdout
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // makes ginkgo stop its servers
	cmd.WaitDelay = time.Minute
	temporary, err := os.MkdirTemp("", "conformance-*")
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets, openedEnv+"="+opened, "TMPDIR="+temporary)
	runtime.LockOSThread() // the kernel kills the child when this thread ends
	defer runtime.UnlockOSThread()
	begin := time.Now()
	err = cmd.Run()
	if err := endLeftovers(temporary); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	exit := &exec.ExitError{}
	if err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("cannot run %s: %w", b.path, err)
	}
	result, readErr := read(out.Bytes(), report, opened, b)
	if readErr != nil {
		return nil, readErr
	}
	result.took = time.Since(begin)
	if err != nil && result.count(failed) == 0 {
		result.specs["the suite ends"] = failed // it crashed or was killed
	}
	if err != nil && w.options.output == nil {
		fmt.Fprintf(os.Stderr, "%s\n", tail(out.Bytes(), 100))
	}
	return result, os.WriteFile(strings.TrimSuffix(b.path, ".test")+fmt.Sprintf(".%d.log", seed), out.Bytes(), 0o644)
}

// tail returns the last lines of a text.
func tail(text []byte, lines int) []byte {
	end := len(text)
	for ; lines > 0 && end > 0; lines-- {
		end = bytes.LastIndexByte(text[:end], '\n')
	}
	return text[max(end, 0):]
}
