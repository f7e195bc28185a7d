package piece

import (
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	t.Parallel()
	var p Of
	var got []string
	for n := range 300 {
		b := []byte(strings.Repeat(string(rune('a'+n%26)), n))
		got = append(got, p.Text(b, 1000))
		for i := range b {
			b[i] = 0
		}
	}
	for n, s := range got {
		if s != strings.Repeat(string(rune('a'+n%26)), n) {
			t.Errorf("%d: %q", n, s)
		}
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason         string
		b, left, spare int
	}{
		{"a whole piece while much text is left", 1, 1 << 20, size - 1},
		{"no more than the text that is left", 1, 10, 9},
		{"at least the text itself", 20, 10, 0},
		{"a large text uses no piece", large + 1, 1 << 20, 0},
		{"an empty text uses nothing", 0, 100, 0},
	} {
		var p Of
		if p.Text(make([]byte, c.b), c.left); len(p.free) != c.spare {
			t.Errorf("%s: %d bytes are spare, want %d", c.reason, len(p.free), c.spare)
		}
	}
}
