package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCalledAs(t *testing.T) {
	t.Parallel()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{
		filepath.Join(wd, "bin", "fairlead"):        filepath.Join("bin", "fairlead"),
		filepath.Join(filepath.Dir(wd), "fairlead"): filepath.Join(filepath.Dir(wd), "fairlead"),
		"fairlead":                             "fairlead",
		filepath.Join("..", "bin", "fairlead"): filepath.Join("..", "bin", "fairlead"),
	} {
		if got := calledAs(program); got != want {
			t.Errorf("%s is called %s, want %s", program, got, want)
		}
	}
}

// TestHints: each command is that of this program, and requests to the example service are shown beside it only.
func TestHints(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason        string
		o             options
		want, without string
	}{
		{"alone", options{controllers: 1}, "  bin/fairlead op schedule", "curl"},
		{
			"another program",
			options{controllers: 1, programs: [][]string{{"bin/receiver", "--fail", "2"}}},
			"  bin/fairlead op schedule", "curl",
		},
		{
			"the example service",
			options{controllers: 1, programs: [][]string{{"bin/receiver"}, {"/src/bin/director"}}},
			"  bin/fairlead op wait", "op schedule",
		},
		{"several controllers", options{controllers: 3}, "  bin/fairlead shards default/", "curl"},
	} {
		hints := strings.Join(tc.o.hints("bin/fairlead"), "\n")
		if !strings.Contains(hints, tc.want) || strings.Contains(hints, tc.without) ||
			strings.Contains(hints, "  fairlead ") {
			t.Errorf("%s: %s", tc.reason, hints)
		}
	}
}
