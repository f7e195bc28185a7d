package cli

import (
	"errors"
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	const text = "äπ 漢"
	if got := Plain(text); got != text {
		t.Errorf("printable text was changed: %q", got)
	}
	for _, control := range []string{
		"\x1b", "\n", "\t", "\r", "\u0085", "\u009b", "\u202e", "\u2028", "\u2029", "\x7f",
	} {
		if got := Plain("a" + control + "b"); got != "a\uFFFDb" {
			t.Errorf("%q becomes %q", control, got)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line  string
		width int
		want  string
	}{{"äöü", 3, "äöü"}, {"äöüß", 3, "äö…"}, {"ab", 1, "…"}} {
		if got := Cut(tc.line, tc.width); got != tc.want {
			t.Errorf("%q in %d columns: %q, want %q", tc.line, tc.width, got, tc.want)
		}
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	value := map[string]any{"items": []int{1}}
	for output, want := range map[string]string{
		"json": "{\n  \"items\": [\n    1\n  ]\n}\n", "yaml": "items:\n- 1\n",
	} {
		var out strings.Builder
		if err := Encode(&out, output, value); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v", output, out.String(), err)
		}
	}
	if got := OneLine(errors.New("a\n\tb")); got != "a b" {
		t.Errorf("one line: %q", got)
	}
}
