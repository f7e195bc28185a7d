package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const printed = `=== RUN   TestSpecs
--- PASS: TestSpecs (1.00s)
=== RUN   TestTable
    --- PASS: TestTable/one (0.00s)
    --- FAIL: TestTable/two (0.00s)
--- FAIL: TestTable (0.00s)
--- SKIP: TestSkipped (0.00s)
--- PASS: TestPlain (0.00s)
`

const reported = `[{"SpecReports": [
	{"ContainerHierarchyTexts": ["a"], "LeafNodeType": "It", "LeafNodeText": "b", "State": "passed"},
	{"ContainerHierarchyTexts": ["a"], "LeafNodeType": "It", "LeafNodeText": "b", "State": "timedout"},
	{"ContainerHierarchyTexts": null, "LeafNodeType": "It", "LeafNodeText": "c", "State": "pending"},
	{"LeafNodeType": "BeforeSuite", "State": "passed"},
	{"LeafNodeType": "AfterSuite", "State": "failed"}
]}]`

const openedLines = `informer *controllerruntime.informer
informer *cache.sharedIndexInformer
cache *controllerruntime.caching
client *client.client
`

// Each spec of a run is read once. Tests that only run ginkgo or have subtests are skipped, and so are openings of
// other packages.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	report, opens := filepath.Join(dir, "report"), filepath.Join(dir, "opened")
	for path, text := range map[string]string{report: reported, opens: openedLines} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := read([]byte(printed), report, opens, &binary{entries: map[string]bool{"TestSpecs": true}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]outcome{
		"TestTable/one": passed, "TestTable/two": failed, "TestSkipped": skipped, "TestPlain": passed,
		"a b": passed, "a b (2)": failed, "c": skipped, "AfterSuite": failed,
	}
	if diff := cmp.Diff(want, got.specs); diff != "" {
		t.Errorf("specs (-want +got):\n%s", diff)
	}
	if want := (opened{informers: 1, caches: 1, clients: 1}); got.opened != want {
		t.Errorf("opened %v, want %v", got.opened, want)
	}
	if _, err := read(nil, filepath.Join(dir, "none"), filepath.Join(dir, "none"), &binary{}); err != nil {
		t.Errorf("a run without files: %v", err)
	}
}

// A spec that passes less often with the adapter is reported, and fails the program. A spec that sometimes fails
// without the adapter is only reported.
func TestReport(t *testing.T) {
	t.Parallel()
	run := func(made opened, specs map[string]outcome) *result { return &result{opened: made, specs: specs} }
	made := opened{informers: 1}
	for _, c := range []struct {
		reason         string
		quiet          bool
		stock, adapter []*result
		conforms       bool
		want           string
	}{
		{
			reason: "all pass", conforms: true, want: "| suite | 2 | 2 | 0 | 2 | 0 | 1, 0, 0 |",
			stock:   []*result{run(opened{}, map[string]outcome{"a": passed, "b": passed})},
			adapter: []*result{run(made, map[string]outcome{"a": passed, "b": passed})},
		},
		{
			reason: "a spec fails with the adapter", want: "- suite: a (adapter passed 0 of 1)",
			stock:   []*result{run(opened{}, map[string]outcome{"a": passed})},
			adapter: []*result{run(made, map[string]outcome{"a": failed})},
		},
		{
			reason: "a spec does not run with the adapter", want: "- suite: b (adapter passed 0 of 1)",
			stock:   []*result{run(opened{}, map[string]outcome{"a": passed, "b": passed})},
			adapter: []*result{run(made, map[string]outcome{"a": passed})},
		},
		{
			reason:  "a spec fails with the adapter that stock does not run",
			want:    "- suite: the suite ends (adapter passed 0 of 1)",
			stock:   []*result{run(opened{}, map[string]outcome{"a": passed})},
			adapter: []*result{run(made, map[string]outcome{"a": passed, "the suite ends": failed})},
		},
		{
			reason: "as often as stock", conforms: true, want: "- suite: a (stock passed 1 of 2)",
			stock: []*result{
				run(opened{}, map[string]outcome{"a": passed}), run(opened{}, map[string]outcome{"a": failed}),
			},
			adapter: []*result{
				run(made, map[string]outcome{"a": failed}), run(made, map[string]outcome{"a": passed}),
			},
		},
		{
			reason: "no informer was replaced", want: "- suite: no informer of ours was opened",
			stock:   []*result{run(opened{}, map[string]outcome{"a": passed})},
			adapter: []*result{run(opened{}, map[string]outcome{"a": passed})},
		},
		{
			reason: "the suite needs no informer", quiet: true, conforms: true, want: "| suite | 1 | 1 | 0 | 1 | 0 | 0, 0, 0 |",
			stock:   []*result{run(opened{}, map[string]outcome{"a": passed})},
			adapter: []*result{run(opened{}, map[string]outcome{"a": passed})},
		},
	} {
		var out strings.Builder
		rows := []*row{{name: "suite", quiet: c.quiet, results: [2][]*result{c.stock, c.adapter}}}
		if got := report(&out, rows, options{modes: []mode{stock, adapter}}); got != c.conforms {
			t.Errorf("%s: conforms is %v", c.reason, got)
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: missing %q in:\n%s", c.reason, c.want, out.String())
		}
	}
}

// askFirst inserts a call at the start of function New, on its first line, with any names of parameters.
func TestAskFirst(t *testing.T) {
	t.Parallel()
	const before = "package p\n\nfunc (T) New(a, b int) {}\n\n" +
		"func New(cfg *C, opts O) (X, error) {\n\treturn nil, nil\n}\n"
	got, err := askFirst([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	const asking = "(X, error) { if made, err, ok := replaced(cfg, &opts); ok { return made, err };"
	want := strings.Replace(before, "(X, error) {", asking, 1)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"package p", "package p; func New(a int) {}", "no go"} {
		if _, err := askFirst([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
