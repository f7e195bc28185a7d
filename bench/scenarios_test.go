package bench_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/fairleadtest/scenario"
)

// TestScenarios plays every scenario against Fairlead and against client-go's informers, and writes what became of them as a
// table to the file that BENCH_SCENARIOS names, else to the log. It fails only if Fairlead does.
func TestScenarios(t *testing.T) {
	subjects := []scenario.Subject{scenario.Fairlead{}, informerSubject{}, informerSubject{dynamic: true}}
	var out strings.Builder
	fmt.Fprint(&out, "| scenario |")
	for _, s := range subjects {
		fmt.Fprintf(&out, " %s |", s.Name())
	}
	fmt.Fprint(&out, "\n|---|---|---|---|\n")
	held := make([]int, len(subjects))
	only := os.Getenv("BENCH_SCENARIO")
	for _, s := range scenario.Table() {
		if only != "" && s.Name != only {
			continue
		}
		fmt.Fprintf(&out, "| %s |", s.Name)
		for i, subject := range subjects {
			res := play(t, s, subject)
			if res.OK() {
				held[i]++
			}
			if i == 0 && !res.OK() {
				t.Errorf("%s: %s: %q %s", subject.Name(), s.Name, res.Problems, res.Skipped)
			}
			fmt.Fprintf(&out, " %s |", verdict(res))
		}
		fmt.Fprintln(&out)
	}
	fmt.Fprint(&out, "| **held** |")
	for _, n := range held {
		fmt.Fprintf(&out, " **%d** |", n)
	}
	fmt.Fprintln(&out)
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
