package bench_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/internal/scenario"
)

// TestScenarios plays every scenario against Fairlead and client-go's informers. It writes a table of the results to
// the file that BENCH_SCENARIOS names, or to the log. Only failures of Fairlead fail the test.
func TestScenarios(t *testing.T) {
	subjects := []scenario.Subject{scenario.Fairlead{}, informerSubject{}, informerSubject{dynamic: true}}
	var out strings.Builder
	fmt.Fprint(&out, "| scenario |")
	for _, s := range subjects {
		fmt.Fprintf(&out, " %s |", s.Name())
	}
	fmt.Fprint(&out, "\n|---|---|---|---|\n")
	counts := make([]map[string]int, len(subjects))
	for i := range counts {
		counts[i] = make(map[string]int)
	}
	only := os.Getenv("BENCH_SCENARIO")
	for _, s := range scenario.Table() {
		if only != "" && s.Name != only {
			continue
		}
		fmt.Fprintf(&out, "| %s |", s.Name)
		for i, subject := range subjects {
			res := play(t, s, subject)
			counts[i][kindOf(res)]++
			if i == 0 && !res.OK() {
				t.Errorf("%s: %s: %q %s", subject.Name(), s.Name, res.Problems, res.Skipped)
			}
			fmt.Fprintf(&out, " %s |", verdict(res))
		}
		fmt.Fprintln(&out)
	}
	for _, kind := range []string{held, wrong, costly, notOffered} {
		fmt.Fprintf(&out, "| **%s** |", kind)
		for _, n := range counts {
			fmt.Fprintf(&out, " **%d** |", n[kind])
		}
		fmt.Fprintln(&out)
	}
	if path := os.Getenv("BENCH_SCENARIOS"); path != "" {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Log("\n" + out.String())
}

func play(t *testing.T, s scenario.Scenario, subject scenario.Subject) (res scenario.Result) {
	synctest.Test(t, func(*testing.T) {
		if s.Name == os.Getenv("BENCH_SCENARIO") || testing.Verbose() {
			fmt.Fprintln(os.Stderr, subject.Name(), "/", s.Name)
		}
		res = s.Play(subject, scenario.Wires()[0])
	})
	return res
}

// The kinds of results.
const (
	held       = "held"
	wrong      = "not held: wrong or stale until the deadline, or contradictory events"
	costly     = "not held: right in the end, after needless lists, requests, events or memory"
	notOffered = "not held: the subject lacks the feature"
)

// kindOf classifies a result. client-go offers no conditions, no names of unreadable objects, no changes of scopes and
// no waits.
func kindOf(r scenario.Result) string {
	if r.OK() {
		return held
	}
	kind := notOffered
	for _, problem := range r.Problems {
		begins := func(prefixes ...string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(problem, p) })
		}
		switch {
		case begins("not within", "W1:", "W2:", "W3:", "W4:", "W5:", "W6:", "W11:", "given "):
			return wrong
		case !begins("W9:", "the message is", "the cache is said to be"):
			kind = costly
		}
	}
	return kind
}

func verdict(r scenario.Result) string {
	switch {
	case r.Skipped != "":
		return r.Skipped
	case r.OK():
		return "ok"
	}
	text := strings.ReplaceAll(strings.Join(r.Problems, "; "), "|", "/")
	if len(text) > 160 {
		text = text[:strings.LastIndexByte(text[:160], ' ')] + " …"
	}
	return text
}
