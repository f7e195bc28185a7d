// Command testall runs the tests of several Go modules with the race detector and reports time and peak memory.
//
//	testall [-limit MB] [-table FILE] MODULE...
//
// The first module, which is the largest, runs concurrently with the others. testall prints one line for each
// finished package, and the output of failed packages. At the end it lists the ten slowest packages. testall fails if
// a test fails, or if a test process or a child of it used more memory than the limit.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	if dir := os.Getenv(measureVar); dir != "" && len(os.Args) > 1 && os.Args[1] == "-measure" {
		os.Exit(measure(dir, os.Args[2:]))
	}
	limit := flag.Int64("limit", 2048, "megabytes that a test process may need")
	table := flag.String("table", "", "a file to write the time and memory of every package to, as Markdown")
	timeout := flag.Duration("timeout", 20*time.Minute, "how long the tests of one package may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &run{limit: *limit, timeout: *timeout, out: os.Stdout}
	if err := r.all(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "testall:", err)
		os.Exit(1)
	}
	if *table != "" {
		if err := os.WriteFile(*table, []byte(r.markdown()), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "testall:", err)
			os.Exit(1)
		}
	}
	if !r.report() {
		os.Exit(1)
	}
}

// result is the test result of one package.
type result struct {
	pkg    string
	failed bool
	passed int // tests and subtests
	broken int
	time   time.Duration
	peak   int64 // megabytes; 0 if no test ran
}

// run collects results. Its methods are safe for concurrent use. Errors of printing are ignored, because the exit
// code has the result.
type run struct {
	limit   int64
	timeout time.Duration

	mu      sync.Mutex
	out     io.Writer
	results []result
}

func (r *run) all(ctx context.Context, modules []string) error {
	if len(modules) == 0 {
		return errors.New("no module is given")
	}
	dir, err := os.MkdirTemp("", "testall")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a remaining temporary directory does no harm
	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = r.module(ctx, modules[0], dir, 2) })
	wg.Go(func() {
		for _, m := range modules[1:] {
			errs[1] = errors.Join(errs[1], r.module(ctx, m, dir, 1))
		}
	})
	wg.Wait()
	return errors.Join(errs[:]...)
}

// event is a line of go test -json.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// module runs the tests of all packages of a module, parallel packages at a time.
func (r *run) module(ctx context.Context, module, dir string, parallel int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dirs, err := directories(ctx, module)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "-C", module, "test", "-race", "-json", "-p", fmt.Sprint(parallel),
		"-timeout", r.timeout.String(), "-exec", self+" -measure", "./...")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), measureVar+"="+dir)
	cmd.Stderr = os.Stderr
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot test %s: %w", module, err)
	}
	packages := map[string]*result{}
	output := map[string]*strings.Builder{}
	failures := 0
	scan := bufio.NewScanner(lines)
	scan.Buffer(nil, 16<<20)
	for scan.Scan() {
		var e event
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
			fmt.Fprintln(os.Stderr, scan.Text())
			continue
		}
		key := cmp.Or(e.Package, e.ImportPath)
		if packages[key] == nil {
			packages[key], output[key] = &result{pkg: key}, &strings.Builder{}
		}
		p, text := packages[key], output[key]
		switch {
		case e.Action == "output" || e.Action == "build-output":
			text.WriteString(e.Output)
		case e.Action == "build-fail":
			r.print(text.String())
		case e.Test != "" && e.Action == "pass":
			p.passed++
		case e.Test != "" && e.Action == "fail":
			p.broken++
		case e.Test == "" && (e.Action == "pass" || e.Action == "fail"):
			p.failed = e.Action == "fail"
			p.time = time.Duration(e.Elapsed * float64(time.Second))
			p.peak = peak(dir, dirs[key])
			if p.failed {
				failures++
				r.print(text.String())
			}
			r.add(*p)
			delete(output, key)
		}
	}
	if err := cmp.Or(scan.Err(), ctx.Err()); err != nil {
		_ = cmd.Wait()
		return fmt.Errorf("cannot test %s: %w", module, err)
	}
	if err := cmd.Wait(); err != nil && failures == 0 {
		return fmt.Errorf("cannot test %s: %w", module, err)
	}
	return nil
}

// directories returns the directory of each package of a module.
func directories(ctx context.Context, module string) (map[string]string, error) {
	list, err := exec.CommandContext(ctx, "go", "-C", module, "list", "-f", "{{.ImportPath}} {{.Dir}}", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of %s: %w", module, err)
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(list)) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		dirs[pkg] = dir
	}
	return dirs, nil
}

// peak returns the peak memory of the tests of the package in a directory, as measure has written it, in megabytes.
func peak(dir, of string) (megabytes int64) {
	text, err := os.ReadFile(filepath.Join(dir, fileName(of)))
	if err != nil {
		return 0 // the package has no test, or does not compile
	}
	_, _ = fmt.Sscan(string(text), &megabytes)
	return megabytes
}

// fileName returns the name of the file for the measurements of the package in a directory.
func fileName(dir string) string { return strings.ReplaceAll(dir, string(filepath.Separator), "%") }

func (r *run) print(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprint(r.out, text)
}

func (r *run) add(p result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, p)
	_, _ = fmt.Fprintln(r.out, p.line(r.limit))
}

func (p result) line(limit int64) string {
	state := "ok  "
	if p.failed {
		state = "FAIL"
	}
	line := fmt.Sprintf("%s %7.1fs %6d MB  %s", state, p.time.Seconds(), p.peak, p.pkg)
	if p.peak > limit {
		line += fmt.Sprintf("  needs more than %d MB", limit)
	}
	return line
}

// report prints the slowest packages and the totals. It reports whether all tests passed.
func (r *run) report() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.results, func(a, b result) int { return cmp.Compare(b.time, a.time) })
	_, _ = fmt.Fprintln(r.out, "==> the slowest packages")
	for _, p := range r.results[:min(10, len(r.results))] {
		_, _ = fmt.Fprintln(r.out, p.line(r.limit))
	}
	passed, failed, ok := 0, 0, true
	for _, p := range r.results {
		passed, failed = passed+p.passed, failed+p.broken
		if p.failed || p.peak > r.limit {
			ok = false
			_, _ = fmt.Fprintln(r.out, "==> "+p.line(r.limit))
		}
	}
	_, _ = fmt.Fprintf(r.out, "%d passed, %d failed\n", passed, failed)
	return ok
}

// markdown returns a table of the packages that have tests, slowest first.
func (r *run) markdown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.results, func(a, b result) int { return cmp.Compare(b.time, a.time) })
	var b strings.Builder
	b.WriteString("| package | seconds | peak MB |\n|---|---:|---:|\n")
	for _, p := range r.results {
		if p.passed+p.broken > 0 {
			name := strings.TrimPrefix(strings.TrimPrefix(p.pkg, "github.com/fairlead-io/fairlead"), "/")
			fmt.Fprintf(&b, "| %s | %.1f | %d |\n", cmp.Or(name, "(root)"), p.time.Seconds(), p.peak)
		}
	}
	return b.String()
}

// measureVar names the directory for measurements. go test -exec passes the environment on.
const measureVar = "FAIRLEAD_TESTALL_MEASURE"

// measure runs a test binary and writes the peak memory of the largest of its processes to a file.
func measure(dir string, args []string) int {
	// The terminal sends Ctrl-C to the test binary as well, which decides whether to exit.
	signal.Ignore(os.Interrupt)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var usage syscall.Rusage
	if cmd.ProcessState != nil && syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage) == nil {
		perMegabyte := int64(1 << 10)
		if runtime.GOOS == "darwin" {
			perMegabyte = 1 << 20
		}
		wd, err := os.Getwd()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fileName(wd)), []byte(fmt.Sprint(usage.Maxrss/perMegabyte)), 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "testall:", err)
		}
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testall:", err)
		return 1
	}
	return 0
}
