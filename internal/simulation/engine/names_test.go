package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The random part of a name is found where the names of all runs differ only in it. Names that a run lacks, or that two
// runs share, are not random.
func TestRandomNames(t *testing.T) {
	run := func(refs ...string) *Outcome {
		out := &Outcome{}
		for _, ref := range refs {
			out.Trace = append(out.Trace, Event{Write: Moment{Object: ref}})
		}
		return out
	}
	for _, tt := range []struct {
		reason string
		runs   []*Outcome
		want   []string
	}{
		{"fixed names", []*Outcome{run("pods/default/web-small"), run("pods/default/web-small")}, nil},
		{
			"a suffix, and names that contain it",
			[]*Outcome{
				run("jobs.batch/default/web-x7x2k", "pods/default/web-x7x2k-small-0"),
				run("jobs.batch/default/web-bcdfg", "pods/default/web-bcdfg-small-0"),
			},
			[]string{`\b(web-)[b-df-hj-np-tv-z2-9]{5}\b`},
		},
		{
			"two parts, of other alphabets",
			[]*Outcome{run("pods/default/a.b-01ef-zzzz0"), run("pods/default/a.b-23ab-0zzzz")},
			[]string{`\b(a\.b-)[0-9a-f]{4}\b`, `\b(a\.b-\*-)[a-z0-9]{5}\b`},
		},
		{"only in one run", []*Outcome{run("pods/default/web-x7x2k"), run("pods/default/web")}, nil},
		{
			"another order of the same names",
			[]*Outcome{run("pods/a/web-aaaa", "pods/a/web-bbbb"), run("pods/a/web-bbbb", "pods/a/web-aaaa")},
			nil,
		},
		{"a number", []*Outcome{run("pods/default/web-1"), run("pods/default/web-2")}, nil},
	} {
		if d := cmp.Diff(tt.want, randomNames(tt.runs)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.reason, d)
		}
	}
	volumes := func(name string) *Outcome {
		keys := Keys{}
		keys.Add("pods/default/web", map[string]any{"spec": map[string]any{"volumes": []any{
			map[string]any{"name": "data"}, map[string]any{"name": name},
		}}})
		return &Outcome{Keys: keys}
	}
	want := []string{`\b(secret-)[b-df-hj-np-tv-z2-9]{5}\b`}
	if d := cmp.Diff(want, randomNames([]*Outcome{volumes("secret-x7x2k"), volumes("secret-bcdfg")})); d != "" {
		t.Errorf("elements of lists (-want +got):\n%s", d)
	}
	n := NewNormalizer([]string{`\b(web-)[b-df-hj-np-tv-z2-9]{5}\b`})
	for text, want := range map[string]string{
		"web-x7x2k": "web-*", "at web-x7x2k-data:80": "at web-*-data:80", "web-small": "web-small",
		"web-x7x2kk": "web-x7x2kk", "myweb-x7x2k": "myweb-x7x2k",
	} {
		if got := n.text(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
}
