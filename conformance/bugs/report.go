package main

import (
	"fmt"
	"io"
	"path"
	"regexp"
	"time"
)

// A row is the result of one side of a bug.
type row struct {
	pin      pin
	side     side
	findings []finding
	text     string // the report of the search
	took     time.Duration
}

// found returns the finding that is the bug, or nil.
func (r row) found() *finding {
	about := regexp.MustCompile(r.pin.about)
	for i, f := range r.findings {
		if f.verdict == r.pin.verdict && about.MatchString(f.text) {
			return &r.findings[i]
		}
	}
	return nil
}

// unknown returns the findings that the pin does not know.
func (r row) unknown() []finding {
	var out []finding
	known := r.pin.about
	if r.pin.remains != "" {
		known += "|" + r.pin.remains
	}
	expression := regexp.MustCompile(known)
	for _, f := range r.findings {
		if !expression.MatchString(f.text) {
			out = append(out, f)
		}
	}
	return out
}

// ok reports whether the row is as the pin says.
func (r row) ok() bool { return (r.found() != nil) == (r.side == before) && len(r.unknown()) == 0 }

func (r row) String() string {
	m := total.FindStringSubmatch(r.text)
	text := "not found"
	if f := r.found(); f != nil {
		text = f.verdict + ": " + f.text
	}
	if others := len(r.findings) - len(r.unknown()); r.found() == nil && others > 0 {
		text += " (another bug is)"
	}
	return fmt.Sprintf("%s, %s schedules in %.0f s", text, m[2], r.took.Seconds())
}

// report writes the table. It reports whether all rows are as their pins say.
func report(out io.Writer, rows []row) bool {
	all := true
	_, _ = fmt.Fprintln(out, "| bug | module | | result |\n|---|---|---|---|")
	for _, r := range rows {
		number := path.Base(r.pin.issue)
		_, _ = fmt.Fprintf(out, "| [%s #%s](%s) | %s@%s | %s | %s |\n", r.pin.name, number, r.pin.issue, r.pin.module,
			r.pin.version(r.side), r.side, r)
	}
	for _, r := range rows {
		if r.ok() {
			continue
		}
		all = false
		_, _ = fmt.Fprintf(out, "\n%s, %v the fix, is not as the pin says. Other findings:\n", r.pin.name, r.side)
		for _, f := range r.unknown() {
			_, _ = fmt.Fprintf(out, "- %s: %s; %s\n", f.verdict, f.text, f.fault)
		}
	}
	return all
}
