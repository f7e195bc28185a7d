package effort

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for _, test := range []struct {
		reason, raw string
		least, most int
	}{
		{"nothing costs nothing", "", 0, 0},
		{"an ordinary object costs its length", `{"a":[1,2,{"b":"[[[[,,,,"}],"c":"\"[,,,,"}`, 42, 42},
		{"a long string costs its length", `"` + strings.Repeat("[,{", 50_000) + `"`, 150_002, 150_002},
		{"so do a few hundred values", "[" + strings.Repeat("0,", 500) + "0]", 1_003, 1_003},
		{"many values cost more", "[" + strings.Repeat("[],", 60_000) + "[]]", 3 << 20, 10 << 20},
		{
			"deep objects cost the square of their depth", strings.Repeat(`{"a":`, 3_000) + "1" + strings.Repeat("}", 3_000),
			3 << 20, 6 << 20,
		},
		{"those of usual depth do not", strings.Repeat(`{"a":`, 16) + "1" + strings.Repeat("}", 16), 97, 97},
		{"a string that does not end is one", `{"a":"\`, 7, 7},
		{"ends without a beginning are no values", "]]]}}}[[[", 9, 9},
	} {
		if got := Of([]byte(test.raw)); got < test.least || got > test.most {
			t.Errorf("%s: %d, not from %d to %d", test.reason, got, test.least, test.most)
		}
	}
}
