// Package guides_test checks that the guides in docs/guides show the programs of this directory.
package guides_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestGuidesShowThePrograms(t *testing.T) {
	t.Parallel()
	for page, files := range map[string][]string{
		"observe":    {"broken/main.go"},
		"reconcile":  {"isolation/main.go"},
		"testing":    {"isolation/main_test.go"},
		"flows":      {"machines/machines.go", "grants/grants.go"},
		"admission":  {"webpages/main.go", "hosts/hosts.go"},
		"dependents": {"numbers/numbers.go"},
		"operations": {"shop/main.go"},
	} {
		shown := read(t, "../../docs/guides/"+page+".md")
		for _, file := range files {
			if !strings.Contains(shown, "```go\n"+read(t, file)+"```") {
				t.Errorf("docs/guides/%s.md does not show examples/guides/%s as it is", page, file)
			}
		}
	}
}

// TestFaults checks that the guide shows the test of the example controller-runtime.
func TestFaults(t *testing.T) {
	t.Parallel()
	page, test := read(t, "../../docs/guides/faults.md"), read(t, "../controller-runtime/faults_test.go")
	if !strings.Contains(page, "```go\n"+test+"```") {
		t.Error("docs/guides/faults.md does not show examples/controller-runtime/faults_test.go as it is")
	}
}

// TestDependents checks that the guide shows the functions of the example webpage, besides whole programs.
func TestDependents(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/guides/dependents.md")
	program := read(t, "../webpage/main.go") + read(t, "numbers/numbers.go")
	blocks := strings.Split(page, "```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("the guide has no code")
	}
	for _, block := range blocks {
		if code, _, _ := strings.Cut(block, "```"); !strings.Contains(program, code) {
			t.Errorf("examples/webpage/main.go does not have\n%s", code)
		}
	}
}

// TestTutorial checks that the tutorial shows the program of examples/tutorial. A block of code is the whole file that
// the last line with "Create" or "Replace" names, or a part of the file after "In".
func TestTutorial(t *testing.T) {
	t.Parallel()
	place := regexp.MustCompile("^(Create|Replace|In) `([^`]+)`")
	code := regexp.MustCompile("(?m)^```\\w+\n((?s:.*?)^)```$")
	page := read(t, "../../docs/tutorial.md")
	blocks, end := 0, 0
	var named []string
	for _, at := range code.FindAllStringSubmatchIndex(page, -1) {
		blocks++
		for line := range strings.Lines(page[end:at[0]]) {
			if found := place.FindStringSubmatch(line); found != nil {
				named = found
			}
		}
		end = at[1]
		if named == nil {
			t.Fatal("the first block of code has no file")
		}
		block, program := page[at[2]:at[3]], read(t, "../tutorial/"+named[2])
		if block != program && (named[1] != "In" || !strings.Contains(program, block)) {
			t.Errorf("examples/tutorial/%s does not have\n%s", named[2], block)
		}
	}
	if blocks == 0 || strings.Count(page, "```") != 2*blocks {
		t.Errorf("the tutorial has %d blocks of code with a language, and other ones", blocks)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
