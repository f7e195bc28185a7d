package content_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/client/internal/content"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLacking(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, stored, typed, want string
	}{
		{"the same", `{"a":1,"l":[{"b":"c"}],"t":true}`, `{"a":1,"l":[{"b":"c"}],"t":true}`, ""},
		{"an additional field", `{"a":1}`, `{"a":1,"b":{}}`, ""},
		{"a null counts as absent", `{"a":null,"b":{"c":null}}`, `{"b":{}}`, ""},
		{"a field", `{"a":{"b":{"c":1}}}`, `{"a":{"b":{}}}`, "a.b.c"},
		{"a field of an absent object", `{"a":{"b":{"c":1}}}`, `{}`, "a.b.c"},
		{"an empty map", `{"a":{"b":{}}}`, `{"a":{}}`, "a.b"},
		{"an empty status", `{"status":{}}`, `{}`, ""},
		{"an empty list", `{"a":[]}`, `{}`, "a"},
		{"an item", `{"a":[1,2]}`, `{"a":[1]}`, "a"},
		{"in an item", `{"a":[1,{"b":2}]}`, `{"a":[1,{}]}`, "a[1].b"},
		{"another type", `{"a":{"b":1}}`, `{"a":"b"}`, "a"},
		{"a false", `{"a":false}`, `{}`, "a"},
		{"another number", `{"a":9007199254740993}`, `{"a":9007199254740992}`, "a"},
		{"another form of a number", `{"a":1.0,"b":2}`, `{"a":1,"b":2.0}`, ""},
		{
			"other forms of a quantity, a duration and a time", `{"q":"1000m","d":"60s","t":"2026-01-01T01:00:00+01:00"}`,
			`{"q":"1","d":"1m0s","t":"2026-01-01T00:00:00Z"}`, "",
		},
		{"a time without its fraction", `{"t":"2026-01-01T00:00:00.5Z"}`, `{"t":"2026-01-01T00:00:00Z"}`, "t"},
		{"another text", `{"a":"1"}`, `{"a":"one"}`, "a"},
		{"a text instead of a number", `{"a":1}`, `{"a":"1"}`, "a"},
	} {
		stored, err := content.Decode([]byte(tc.stored))
		if err != nil {
			t.Fatal(err)
		}
		typed, err := content.Decode([]byte(tc.typed))
		if err != nil {
			t.Fatal(err)
		}
		if got := content.Lacking(stored, typed, ""); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}
