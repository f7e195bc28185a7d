// Command bugs reproduces published bugs of public operators by enumeration of faults. Package simulate runs each
// operator at a version before the fix, where it has to find the bug, and at one after the fix, where it must not.
//
//	make conformance-bugs                             # in the root: all bugs
//	make conformance-bugs BUGS='-bugs cert-manager'   # those whose name matches
//	go run ./bugs -only before -v                     # here: only the versions before the fix, with all output
//
// The operators are Go modules at the versions in pins.go. Nothing of them is changed: a test of ours in testdata/
// starts their controllers, or the program that they publish is built and run. No workload names a moment or a fault.
//
// The table on stdout has a row for each side of a bug. The exit code is 1 if a bug is not found before its fix, is
// found after it, or if there is a finding that the pin does not know.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	repository string         // root of this repository
	dir        string         // for modules, programs and reports
	bugs       *regexp.Regexp // names
	sides      []side
	search     time.Duration // for each side
	verbose    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bugs:", err)
		os.Exit(2)
	}
	ok, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bugs:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func parse(arguments []string) (options, error) {
	o := options{sides: []side{before, after}}
	flags := flag.NewFlagSet("bugs", flag.ContinueOnError)
	flags.StringVar(&o.repository, "repository", "..", "the `directory` of Fairlead's repository")
	flags.StringVar(&o.dir, "dir", "",
		"the `directory` of modules and reports (default: fairlead/bugs in the user's cache directory)")
	flags.DurationVar(&o.search, "for", 15*time.Minute, "the time of all runs of a version")
	flags.BoolVar(&o.verbose, "v", false, "print the whole report of each version")
	bugs := flags.String("bugs", "", "a regular `expression` of the names of bugs, such as cert-manager")
	only := flags.String("only", "", "before or after: only the versions before or after the fix")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	var err error
	if o.bugs, err = regexp.Compile(*bugs); err != nil {
		return o, err
	}
	switch *only {
	case "":
	case before.String():
		o.sides = []side{before}
	case after.String():
		o.sides = []side{after}
	default:
		return o, fmt.Errorf("-only is before or after, not %q", *only)
	}
	if o.repository, err = filepath.Abs(o.repository); err != nil {
		return o, err
	}
	if o.dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return o, fmt.Errorf("no -dir, and no default: %w", err)
		}
		o.dir = filepath.Join(user, "fairlead", "bugs")
	}
	o.dir, err = filepath.Abs(o.dir)
	return o, err
}

// run plays all chosen bugs. It reports whether each was found before its fix, and nothing unknown anywhere.
func run(ctx context.Context, o options) (bool, error) {
	var rows []row
	for _, b := range pins {
		if !o.bugs.MatchString(b.name) {
			continue
		}
		for _, s := range o.sides {
			progress("%s, %v the fix: %s@%s", b.name, s, b.module, b.version(s))
			r, err := play(ctx, o, b, s)
			if err != nil {
				return false, fmt.Errorf("%s, %v the fix: %w", b.name, s, err)
			}
			progress("%s, %v the fix: %s", b.name, s, r)
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return false, fmt.Errorf("no bug is called %s", o.bugs)
	}
	var table strings.Builder
	ok := report(&table, rows)
	fmt.Print(table.String())
	return ok, nil
}

func progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "==> %s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, arguments...))
}
