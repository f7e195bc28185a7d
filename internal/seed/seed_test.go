package seed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChoose(t *testing.T) {
	type env struct{ seed, seeds, base string }
	for _, c := range []struct {
		reason string
		env    env
		want   int
	}{
		{"a plain run plays one seed", env{}, 1},
		{"with a base the test plays all seeds that it asks for", env{base: "abc"}, 5},
		{"a number of seeds overrides that of the test", env{base: "abc", seeds: "7"}, 7},
		{"a number of seeds works without a base, too", env{seeds: "3"}, 3},
		{"one seed is played alone", env{base: "abc", seeds: "7", seed: "12"}, 1},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Setenv("FAIRLEAD_SEED", c.env.seed)
			t.Setenv("FAIRLEAD_SEEDS", c.env.seeds)
			t.Setenv("FAIRLEAD_SEED_BASE", c.env.base)
			seeds := choose(t, 5)
			if len(seeds) != c.want {
				t.Errorf("%d seeds, want %d", len(seeds), c.want)
			}
			if diff := cmp.Diff(seeds, choose(t, 5)); diff != "" {
				t.Errorf("a second run plays other seeds, -first +second:\n%s", diff)
			}
			if c.env.seed != "" && seeds[0] != 12 {
				t.Errorf("seed %d, want 12", seeds[0])
			}
		})
	}
}

func TestBasesDiffer(t *testing.T) {
	t.Setenv("FAIRLEAD_SEED_BASE", "abc")
	one := derive("TestX", 0)
	if one == derive("TestY", 0) || one == derive("TestX", 1) {
		t.Error("two tests, or two seeds of one test, are equal")
	}
	t.Setenv("FAIRLEAD_SEED_BASE", "abd")
	if one == derive("TestX", 0) {
		t.Error("another base gives the same seed")
	}
}

func TestSample(t *testing.T) {
	list := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	drawn := map[int]bool{}
	for base := range 50 {
		t.Setenv("FAIRLEAD_SEED_BASE", fmt.Sprint(base))
		sample := Sample(t, list, 4)
		if diff := cmp.Diff(sample, Sample(t, list, 4)); diff != "" {
			t.Errorf("a second run draws other elements, -first +second:\n%s", diff)
		}
		if len(sample) < 2 || len(sample) > 3 || sample[0] > 3 || sample[1] < 4 || sample[1] > 7 {
			t.Errorf("%v is not a sample of one out of four", sample)
		}
		for _, i := range sample {
			drawn[i] = true
		}
	}
	if len(drawn) != len(list) {
		t.Errorf("in 50 runs only %v were drawn", drawn)
	}
}

func TestRecorded(t *testing.T) {
	for _, c := range []struct {
		reason, text string
		want         []uint64
		err          string
	}{
		{
			reason: "the seeds of the test, in order", text: "TestX 7 # a fault\n\n# a comment\nTestY 8\nTestX 9",
			want: []uint64{7, 9},
		},
		{reason: "a line without a seed is reported with its place", text: "TestX 7\nTestX", err: "seeds:2: "},
		{reason: "a seed that is not a number is reported with its place", text: "TestX seven", err: "seeds:1: "},
	} {
		t.Run(c.reason, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "seeds")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := recorded(path, "TestX")
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if got, err := recorded(filepath.Join(t.TempDir(), "none"), "TestX"); got != nil || err != nil {
		t.Errorf("a missing file gives %v, %v", got, err)
	}
}

func TestCommand(t *testing.T) {
	want := "FAIRLEAD_SEED=7 go test -count 1 -run '^TestX$/^a\\+b$' ./internal/seed"
	if Race {
		want = strings.Replace(want, "test -count", "test -race -count", 1)
	}
	if got := command("TestX/a+b", 7); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	root := t.TempDir()
	for _, dir := range []string{".", "module"} {
		if err := os.MkdirAll(filepath.Join(root, dir, "pkg"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "go.mod"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if module, dir := place(filepath.Join(root, "module", "pkg")); module != "module" || dir != "pkg" {
		t.Errorf("module %s, directory %s", module, dir)
	}
}
