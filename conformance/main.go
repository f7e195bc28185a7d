// Command conformance runs unmodified test suites with the cache and client of module controllerruntime instead of
// the defaults of controller-runtime. The suites are those of controller-runtime and the integration tests of public
// operators.
//
//	make conformance                                         # in the root: everything, once stock and once with ours
//	go run . -runs 5 -suites 'jobset|lws'                    # some suites, five times each
//	go run . -runs 5 -o ../docs/controller-runtime.md        # everything, and update the page
//	go run . -only adapter -v -suites 'runtime.*/pkg/cache$' # one suite, with its output
//
// The sources are Go modules from the module proxy, at the versions in subjects.go. They are copied to a directory
// (-dir), and the copies are not changed. The difference between the two runs is an overlay for the compiler
// (hook.go): cache.New and client.New of controller-runtime first look for a replacement, and a file in each suite
// registers one. A cache or client that a suite creates with the defaults is therefore ours. One with options of its
// own is not.
//
// The table on stdout has a row for each suite: specs that ran, passed and failed, stock and with the adapter, and
// the number of our informers. Below it are the specs that fail stock on this machine, and the specs that fail, or do
// not run, only with the adapter. The exit code is 1 if there are specs of the second kind, or if a suite that opens
// informers has opened none of ours.
//
// kube-apiserver and etcd are those of package cluster, which builds them on first use.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/cluster"
)

// options are the flags.
type options struct {
	repository string         // root of this repository
	dir        string         // for copies of sources, binaries and reports
	suites     *regexp.Regexp // suites to run
	runs       int
	modes      []mode
	race       bool
	list       bool
	output     io.Writer // gets the output of the suites; nil: print only that of failed suites
	page       string    // file for the table; "": none
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	conforms, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
	if !conforms {
		os.Exit(1)
	}
}

func parse(arguments []string) (options, error) {
	o := options{modes: []mode{stock, adapter}}
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.StringVar(&o.repository, "repository", "..", "the `directory` of Fairlead's repository")
	flags.StringVar(&o.dir, "dir", "",
		"the `directory` of copies and reports (default: fairlead/conformance in the user's cache directory)")
	flags.IntVar(&o.runs, "runs", 1, "how often each suite is run, stock and with the adapter alternately")
	flags.BoolVar(&o.race, "race", false, "with the race detector")
	flags.BoolVar(&o.list, "list", false, "only print the names of the suites")
	flags.StringVar(&o.page, "o", "", "a `page` into which the table is written, too, between its markers")
	verbose := flags.Bool("v", false, "print what the suites print; by default only of those that fail, at their end")
	suites := flags.String("suites", "", "a regular `expression` of the suites to run, such as 'pkg/(cache|client)$'")
	only := flags.String("only", "", "stock or adapter: run the suites one way only, without a comparison")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	var err error
	if o.suites, err = regexp.Compile(*suites); err != nil {
		return o, err
	}
	switch *only {
	case "":
	case stock.String():
		o.modes = []mode{stock}
	case adapter.String():
		o.modes = []mode{adapter}
	default:
		return o, fmt.Errorf("-only is stock or adapter, not %q", *only)
	}
	if *verbose {
		o.output = os.Stderr
	}
	if o.repository, err = filepath.Abs(o.repository); err != nil {
		return o, err
	}
	if o.dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return o, fmt.Errorf("no -dir, and no default: %w", err)
		}
		o.dir = filepath.Join(user, "fairlead", "conformance")
	}
	o.dir, err = filepath.Abs(o.dir)
	return o, err
}

// run runs the suites. It reports whether the adapter passes everything that passes stock.
func run(ctx context.Context, o options) (bool, error) {
	if o.list {
		for _, s := range subjects {
			for _, pkg := range s.packages {
				fmt.Println(s.name(pkg))
			}
		}
		return true, nil
	}
	assets, err := controlPlane(ctx, o.dir)
	if err != nil {
		return false, err
	}
	var rows []*row
	for _, s := range subjects {
		if !s.chosen(o.suites) {
			continue
		}
		progress("fetch and copy %s@%s", s.module, s.version)
		w, err := prepare(ctx, o, s)
		if err != nil {
			return false, err
		}
		for _, pkg := range s.packages {
			if !o.suites.MatchString(s.name(pkg)) {
				continue
			}
			r, err := w.suite(ctx, pkg, assets)
			if err != nil {
				return false, err
			}
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return false, fmt.Errorf("no suite is called %s", o.suites)
	}
	var table strings.Builder
	conforms := report(&table, rows, o)
	fmt.Print(table.String())
	return conforms, onPage(o.page, table.String())
}

// Markers of the part of a page that has the results.
const (
	pageBegin = "<!-- conformance: begin -->\n"
	pageEnd   = "<!-- conformance: end -->\n"
)

// onPage writes a text between the markers of a page. An empty path is ignored.
func onPage(path, text string) error {
	if path == "" {
		return nil
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, begins := strings.Cut(string(page), pageBegin)
	_, tail, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no lines %q and %q", path, pageBegin, pageEnd)
	}
	return os.WriteFile(path, []byte(head+pageBegin+"\n"+text+"\n"+pageEnd+tail), 0o644)
}

// controlPlane returns a directory with kube-apiserver and etcd under the names that envtest expects.
func controlPlane(ctx context.Context, dir string) (string, error) {
	binaries, err := cluster.Build(ctx, cluster.BuildOptions{Progress: os.Stderr})
	if err != nil {
		return "", err
	}
	assets := filepath.Join(dir, "assets")
	if err := os.MkdirAll(assets, 0o755); err != nil {
		return "", err
	}
	for name, path := range map[string]string{"kube-apiserver": binaries.APIServer, "etcd": binaries.Etcd} {
		link := filepath.Join(assets, name)
		if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
			return "", err
		}
		if err := os.Symlink(path, link); err != nil {
			return "", err
		}
	}
	return assets, nil
}

func progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "==> %s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, arguments...))
}
