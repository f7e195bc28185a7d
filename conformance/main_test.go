package main

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnPage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.md")
	for _, c := range []struct{ reason, before, after string }{
		{"no markers: the page stays", "# A\n", ""},
		{"a single marker does not count", "# A\n" + pageBegin + "old\n", ""},
		{
			"only the text between the markers", "# A\n" + pageBegin + "old\n" + pageEnd + "B\n",
			"# A\n" + pageBegin + "\nnew\n\n" + pageEnd + "B\n",
		},
	} {
		if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		err := onPage(path, "new\n")
		if c.after == "" {
			if err == nil {
				t.Errorf("%s: no error", c.reason)
			}
			c.after = c.before
		}
		if got, _ := os.ReadFile(path); string(got) != c.after {
			t.Errorf("%s: the page is %q, want %q", c.reason, got, c.after)
		}
	}
	if err := onPage("", "new"); err != nil {
		t.Errorf("without a page: %v", err)
	}
}
