package up

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

func TestSplitWords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, line string
		want         []string
		err          string
	}{
		{"nothing", " \t", nil, ""},
		{"spaces separate", " bin/receiver  --fail\t2 ", []string{"bin/receiver", "--fail", "2"}, ""},
		{"single quotes keep all", `'/my tools/receiver' '\n"$X'`, []string{"/my tools/receiver", `\n"$X`}, ""},
		{"double quotes keep spaces and single quotes", `"/my tools/it's"`, []string{"/my tools/it's"}, ""},
		{"in double quotes only quotes and backslashes are escaped", `"a\"b\\c\d"`, []string{`a"b\c\d`}, ""},
		{"a backslash keeps the next character", `/my\ tools/receiver \'x`, []string{"/my tools/receiver", "'x"}, ""},
		{"parts of a word are one word", `--name='a b'" c"d`, []string{"--name=a b cd"}, ""},
		{"an empty word is a word", `program ''`, []string{"program", ""}, ""},
		{"nothing is expanded", `echo $HOME *`, []string{"echo", "$HOME", "*"}, ""},
		{"open single quote", `'a b`, nil, "unclosed quote: '"},
		{"open double quote", `a "b\"`, nil, `unclosed quote: "`},
		{"backslash at the end", `a\`, nil, "nothing follows the last"},
	} {
		got, err := splitWords(tc.line)
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", tc.reason, d)
		}
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: error %v, want %q", tc.reason, err, tc.err)
		}
	}
}

// splitWords returns exactly the words that ShellQuote quoted.
func TestSplitWordsUndoesShellQuote(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.String(), 1, 5).Draw(t, "words")
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, cli.ShellQuote(w))
		}
		got, err := splitWords(strings.Join(quoted, " "))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(words, got); d != "" {
			t.Error(d)
		}
	})
}
