package main

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCheck runs the trees in testdata. The comment of a tree lists what check reports.
func TestCheck(t *testing.T) {
	t.Parallel()
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no trees: %v", err)
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(archive)
			if err != nil {
				t.Fatal(err)
			}
			tree, names := fstest.MapFS{}, []string{"removed.md", "docs"}
			for _, f := range a.Files {
				tree[f.Name] = &fstest.MapFile{Data: f.Data}
				names = append(names, f.Name)
			}
			got, err := check(tree, names)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.TrimSpace(string(a.Comment))
			if diff := cmp.Diff(want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("reports (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheckBinary checks that links within binary files do not count.
func TestCheckBinary(t *testing.T) {
	t.Parallel()
	got, err := check(fstest.MapFS{"a.md": {Data: []byte("\x00[x](none)"), Mode: fs.ModePerm}}, []string{"a.md"})
	if err != nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRunOfNoRepository(t *testing.T) {
	t.Parallel()
	if err := run(t.TempDir()); err == nil {
		t.Error("no error")
	}
}
