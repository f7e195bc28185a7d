package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// A row is the row of one suite in the table.
type row struct {
	name    string
	quiet   bool // the suite may open no informer
	results [2][]*result
}

// ended returns the number of runs of a mode in which a spec had the outcome o.
func (r *row) ended(m mode, spec string, o outcome) int {
	n := 0
	for _, result := range r.results[m] {
		if result.specs[spec] == o {
			n++
		}
	}
	return n
}

func (r *row) passes(m mode, spec string) int { return r.ended(m, spec, passed) }

// specs returns the names of the specs that ran in any run of a mode.
func (r *row) specs(m mode) []string {
	all := map[string]outcome{}
	for _, result := range r.results[m] {
		for name, o := range result.specs {
			if o != skipped {
				all[name] = o
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// failures returns the specs that did not pass in every run of a mode.
func (r *row) failures(m mode) []string {
	return slices.DeleteFunc(r.specs(m), func(spec string) bool { return r.passes(m, spec) == len(r.results[m]) })
}

// worse returns the specs that pass less often with the adapter than stock, or fail more often. The two differ for
// specs that do not run stock.
func (r *row) worse() []string {
	all := slices.Sorted(slices.Values(append(r.specs(stock), r.specs(adapter)...)))
	return slices.DeleteFunc(slices.Compact(all), func(spec string) bool {
		return r.passes(adapter, spec) >= r.passes(stock, spec) &&
			r.ended(adapter, spec, failed) <= r.ended(stock, spec, failed)
	})
}

// opened returns the objects that the adapter created in its first run.
func (r *row) opened() opened {
	if len(r.results[adapter]) == 0 {
		return opened{}
	}
	return r.results[adapter][0].opened
}

// cell returns the table cells of a mode: the number of specs that ran, that always passed and that did not, and the
// number of runs that passed completely.
func (r *row) cell(m mode) string {
	runs := len(r.results[m])
	if runs == 0 {
		return "| | "
	}
	whole := 0
	for _, result := range r.results[m] {
		if result.count(failed) == 0 {
			whole++
		}
	}
	bad := len(r.failures(m))
	text := fmt.Sprintf("| %d | %d ", len(r.specs(m))-bad, bad)
	if runs > 1 {
		text = fmt.Sprintf("| %d (%d of %d runs whole) | %d ", len(r.specs(m))-bad, whole, runs, bad)
	}
	return text
}

// tell returns a line about how often a spec passed.
func (r *row) tell(m mode, spec string) string {
	return fmt.Sprintf("%s: %s (%v passed %d of %d)", r.name, spec, m, r.passes(m, spec), len(r.results[m]))
}

// report prints the table and the lists below it. It reports whether the adapter passes everything that passes stock.
func report(out io.Writer, rows []*row, o options) bool {
	var text strings.Builder
	fmt.Fprint(&text, "| suite | specs | stock: passed | failed | adapter: passed | failed ",
		"| ours: informers, caches, clients |\n")
	fmt.Fprintln(&text, "|---|---|---|---|---|---|---|")
	compared := len(o.modes) == 2
	var known, news []string
	for _, r := range rows {
		fmt.Fprintf(&text, "| %s | %d %s%s| %v |\n",
			r.name, len(r.specs(o.modes[0])), r.cell(stock), r.cell(adapter), r.opened())
		for _, spec := range r.failures(stock) {
			known = append(known, r.tell(stock, spec))
		}
		lacking := r.failures(adapter)
		if compared {
			lacking = r.worse()
		}
		for _, spec := range lacking {
			news = append(news, r.tell(adapter, spec))
		}
		if !r.quiet && len(r.results[adapter]) > 0 && r.opened().informers == 0 {
			news = append(news, r.name+": no informer of ours was opened")
		}
	}
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&text, "\n%s:\n\n", title)
			for _, line := range lines {
				fmt.Fprintf(&text, "- %s\n", line)
			}
		}
	}
	section("Does not always pass stock, on this machine", known)
	section("Passes less often with the adapter", news)
	if len(news) > 0 {
		logs := filepath.Join(o.dir, "work", "*", "reports", "*.log")
		fmt.Fprintf(&text, "\nWhat the suites printed is in %s.\n", logs)
	}
	fmt.Fprint(out, text.String()) //nolint:errcheck // stdout
	return len(news) == 0
}
