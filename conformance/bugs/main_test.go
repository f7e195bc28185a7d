package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const found = `=== RUN   TestFaults
    faults_test.go:35: simulate: finding 1 (left over, shown by 3 of 3 replays)
          pods/default/a-* exists 2 times; without the fault 1
          also: the end is another one
          fault:  the answer to the 1st create of pods/default/a-* is lost
          course:
                0.1s subject  create pods/default/a-* → 201
        
        simulate: finding 2 (other end, shown by 2 of 3 replays)
          pods/default/b is missing
          fault:  the 1st create of pods/default/b is answered with 500
        
        simulate: 2 findings in 57 schedules (seed 1, 28.2s). 13 distinct writes and 13 changes allow 117 single faults.
--- FAIL: TestFaults (28.34s)
`

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := read(found)
	want := []finding{
		{
			"left over", "pods/default/a-* exists 2 times; without the fault 1",
			"the answer to the 1st create of pods/default/a-* is lost",
		},
		{"other end", "pods/default/b is missing", "the 1st create of pods/default/b is answered with 500"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(finding{})); err != nil || d != "" {
		t.Errorf("error %v, findings (-want +got):\n%s", err, d)
	}
	for _, text := range []string{
		"", "simulate: could not be judged", "simulate: 0 findings in 0 schedules (seed 1)",
		strings.Replace(found, "simulate: 2 findings", "simulate: 3 findings", 1),
	} {
		if _, err := read(text); err == nil {
			t.Errorf("%q was judged", text)
		}
	}
}

// A side is as its pin says if the bug is found before the fix only, and nothing unknown is found.
func TestReport(t *testing.T) {
	t.Parallel()
	bug := finding{verdict: "left over", text: "pods/default/a-* exists 2 times; without the fault 1"}
	other := finding{verdict: "other end", text: "pods/default/b is missing"}
	for _, tt := range []struct {
		reason   string
		side     side
		remains  string
		findings []finding
		ok       bool
	}{
		{"found", before, "", []finding{bug}, true},
		{"not found", before, "", nil, false},
		{"silent", after, "", nil, true},
		{"found after its fix", after, "", []finding{bug}, false},
		{"an unknown bug", after, "", []finding{other}, false},
		{"an unknown bug beside it", before, "", []finding{bug, other}, false},
		{"a known other bug", after, "^pods/default/b ", []finding{other}, true},
	} {
		p := pin{name: "a", issue: "https://example.com/issues/7", verdict: "left over", about: "^pods/default/a"}
		p.remains = tt.remains
		var out strings.Builder
		rows := []row{{pin: p, side: tt.side, findings: tt.findings, text: "simulate: 0 findings in 9 schedules"}}
		if got := report(&out, rows); got != tt.ok {
			t.Errorf("%s: %v\n%s", tt.reason, got, out.String())
		}
		if !strings.Contains(out.String(), "| [a #7](https://example.com/issues/7) |") {
			t.Errorf("%s: no row in\n%s", tt.reason, out.String())
		}
	}
}

// Each pin has its folder, and expressions that compile.
func TestPins(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, p := range pins {
		if names[p.name] {
			t.Errorf("two pins are called %s", p.name)
		}
		names[p.name] = true
		files := []string{"faults_test.go"}
		if p.program == "" {
			files = append(files, "before_test.go", "after_test.go")
		}
		for _, file := range files {
			if _, err := os.Stat(filepath.Join("testdata", p.name, file)); err != nil {
				t.Error(err)
			}
		}
		for _, e := range []string{p.about, p.remains} {
			if _, err := regexp.Compile(e); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		if p.verdict == "" || p.about == "" {
			t.Errorf("%s has no verdict", p.name)
		}
	}
	folders, err := os.ReadDir("testdata")
	if err != nil || len(folders) != len(pins) {
		t.Errorf("%d folders and %d pins, error %v", len(folders), len(pins), err)
	}
}

func TestWithoutTemplates(t *testing.T) {
	t.Parallel()
	got := withoutTemplates([]byte("a: 1\nb: '{{ .Name }}'\nc: 2"))
	if d := cmp.Diff("a: 1\nc: 2", string(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
