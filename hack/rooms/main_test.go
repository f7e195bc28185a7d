package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCount counts in a module whose files a and b use each other, while c is used only.
func TestCount(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"a.go": "package m\n\ntype T struct{}\n\nfunc (t *T) Start() { t.next(); var s stopper = t; s.Stop() }\n\nfunc " +
			"(*T) Stop() { unused() }\n",
		"b.go": "package m\n\nfunc (t *T) next() { f := func() { last() }; f() }\n\ntype stopper interface{ Stop() }\n",
		"c.go": "package m\n\nfunc last() {}\n\nfunc unused() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := count(dir, []string{".:T.Start"}, false)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out), " ")
	want := ". largest cycle of files 2 of 3 .:T.Start 3 functions in 3 files"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := count(dir, []string{".:T.Missing"}, false); err == nil {
		t.Error("a function that does not exist is counted")
	}
}
