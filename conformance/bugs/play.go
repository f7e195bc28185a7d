package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// library is the path of our module.
const library = "github.com/fairlead-io/fairlead"

// play runs one side of a bug, and returns its findings.
func play(ctx context.Context, o options, p pin, s side) (row, error) {
	r := row{pin: p, side: s}
	dir := filepath.Join(o.dir, p.name, s.String())
	source, err := download(ctx, p.module+"@"+p.version(s))
	if err != nil {
		return r, err
	}
	if err := generate(ctx, o, p, s, dir, source); err != nil {
		return r, err
	}
	if p.program != "" {
		if err := build(ctx, p, source, dir); err != nil {
			return r, err
		}
	}
	binary := filepath.Join(dir, "bug.test")
	if _, err := goCommand(ctx, dir, "test", "-mod=mod", "-c", "-o", binary, "."); err != nil {
		return r, err
	}
	begin := time.Now()
	if r.text, err = test(ctx, o, dir, binary); err != nil {
		return r, err
	}
	r.took = time.Since(begin)
	if o.verbose {
		fmt.Fprintln(os.Stderr, r.text)
	}
	if r.findings, err = read(r.text); err != nil {
		return r, fmt.Errorf("%w:\n%s", err, r.text)
	}
	return r, os.WriteFile(filepath.Join(dir, "report.txt"), []byte(r.text), 0o644)
}

// download returns the directory of a module, named as module@version, in the module cache.
func download(ctx context.Context, module string) (string, error) {
	out, err := goCommand(ctx, os.TempDir(), "mod", "download", "-json", module)
	if err != nil {
		return "", err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return "", fmt.Errorf("cannot read what go mod download says of %s: %w", module, err)
	}
	return downloaded.Dir, nil
}

// generate writes a module that requires the operator, with the files of testdata and the CustomResourceDefinitions.
func generate(ctx context.Context, o options, p pin, s side, dir, source string) error {
	crds := filepath.Join(dir, "crds")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(crds, 0o755)); err != nil {
		return err
	}
	ours := filepath.Join(o.repository, "conformance", "bugs", "testdata", p.name)
	if err := os.CopyFS(dir, os.DirFS(ours)); err != nil {
		return err
	}
	if p.program == "" {
		if err := os.Remove(filepath.Join(dir, (1-s).String()+"_test.go")); err != nil {
			return err
		}
	}
	for _, pattern := range p.definitions[s] {
		from := source
		if other, rest, ok := strings.Cut(pattern, " "); ok {
			var err error
			if from, err = download(ctx, other); err != nil {
				return err
			}
			pattern = rest
		}
		if err := copyDefinitions(crds, filepath.Join(from, pattern)); err != nil {
			return err
		}
	}
	require := []string{library + "@v0.0.0"}
	if p.program == "" {
		require = append(require, p.module+"@"+p.version(s))
		require = append(require, p.requires[s]...)
	}
	return initModule(ctx, dir, require, "-replace="+library+"="+o.repository)
}

func initModule(ctx context.Context, dir string, require []string, edit ...string) error {
	if _, err := goCommand(ctx, dir, "mod", "init", "example.com/bug"); err != nil {
		return err
	}
	for _, r := range require {
		edit = append(edit, "-require="+r)
	}
	_, err := goCommand(ctx, dir, append([]string{"mod", "edit"}, edit...)...)
	return err
}

func copyDefinitions(to, pattern string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("there are no definitions %s", pattern)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), withoutTemplates(b), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// withoutTemplates removes the lines of a definition that a helm chart fills: labels and annotations.
func withoutTemplates(definition []byte) []byte {
	var out []byte
	for line := range bytes.Lines(definition) {
		if !bytes.Contains(line, []byte("{{")) {
			out = append(out, line...)
		}
	}
	return out
}

// build builds the program of the operator in its own module, with the versions and replacements of its go.mod.
func build(ctx context.Context, p pin, source, dir string) error {
	_, err := goCommand(ctx, source, "build", "-o", filepath.Join(dir, "operator"), p.program)
	return err
}

// test runs the test of the generated module.
func test(ctx context.Context, o options, dir, binary string) (string, error) {
	return output(ctx, dir, binary, "-test.run=^TestFaults$", "-test.v", "-test.timeout=1h",
		"-for="+o.search.String())
}

// output returns what a command prints. The exit code 1 tells of findings.
func output(ctx context.Context, dir, name string, arguments ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, io.Discard
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it leaves nothing behind
	cmd.WaitDelay = time.Minute
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return "", fmt.Errorf("cannot run %s: %w\n%s", name, err, out.String())
	}
	return out.String(), context.Cause(ctx)
}

func goCommand(ctx context.Context, dir string, arguments ...string) ([]byte, error) {
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &problems
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cannot run go %s: %w\n%s", strings.Join(arguments, " "), err, problems.String())
	}
	return out.Bytes(), nil
}

// A finding is the head of a finding in a report.
type finding struct{ verdict, text, fault string }

var (
	head  = regexp.MustCompile(`simulate: finding \d+ \(([^,]+), shown by \d+ of \d+ replays\)$`)
	total = regexp.MustCompile(`simulate: (\d+) findings? in (\d+) schedules?\b`)
)

// read returns the findings of a report.
func read(text string) ([]finding, error) {
	var out []finding
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		m := head.FindStringSubmatch(line)
		if m == nil || i+1 == len(lines) {
			continue
		}
		f := finding{verdict: m[1], text: strings.TrimSpace(lines[i+1])}
		for _, next := range lines[i+1:] {
			if fault, ok := strings.CutPrefix(strings.TrimSpace(next), "fault:"); ok {
				f.fault = strings.TrimSpace(fault)
				break
			}
		}
		out = append(out, f)
	}
	if m := total.FindStringSubmatch(text); m == nil || m[1] != fmt.Sprint(len(out)) || m[2] == "0" {
		return nil, errors.New("the operator was not judged")
	}
	return out, nil
}
