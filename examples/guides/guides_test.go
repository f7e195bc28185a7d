// Package guides_test checks that the guides in docs/guides show the programs of this directory.
package guides_test

import (
	"os"
	"strings"
	"testing"
)

func TestGuidesShowThePrograms(t *testing.T) {
	t.Parallel()
	for page, files := range map[string][]string{
		"observe":    {"broken/main.go"},
		"reconcile":  {"isolation/main.go"},
		"testing":    {"isolation/main_test.go"},
		"flows":      {"machines/machines.go"},
		"admission":  {"webpages/main.go"},
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

// TestDependents checks that the guide shows the functions of the example webpage.
func TestDependents(t *testing.T) {
	t.Parallel()
	page, program := read(t, "../../docs/guides/dependents.md"), read(t, "../webpage/main.go")
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

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
