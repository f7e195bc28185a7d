package source_test

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
)

func TestListThenWatch(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	s := serve(t, []reply{page(5, "t1", object("a", 1)), page(5, "", object("b", 4))},
		[]reply{watch(event("ADDED", object("c", 6)), event("MODIFIED", object("a", 7)), event("DELETED", object("b", 8)),
			bookmark(20))})
	s.run(r, func(c *source.Config) { c.PageSize = 1 })
	r.wait("the bookmark", func() bool { return r.version == "20" })
	got := r.snapshot()
	if len(got) != 2 || got["ns/a"].version != "7" || got["ns/c"].version != "6" {
		t.Errorf("objects %v, want a at 7 and c at 6", got)
	}
	want := []string{"LIST limit=1", "LIST continue=t1 limit=1", "WATCH resourceVersion=5"}
	for i, req := range s.seen() {
		if i >= len(want) || req != want[i] {
			t.Errorf("request %d is %q, want %q", i, req, want)
		}
	}
}

func TestWatchList(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	s := serve(t, nil, []reply{watch(event("ADDED", object("a", 1)), event("ADDED", object("b", 2)), bookmark(3),
		event("MODIFIED", object("a", 4)), event("DELETED", object("b", 5)), initialEnd(6),
		event("MODIFIED", object("a", 9)))})
	s.run(r, func(c *source.Config) { c.NoWatchList = false })
	r.wait("the change", func() bool { return r.version == "9" })
	if got := r.snapshot(); len(got) != 1 || got["ns/a"].version != "9" {
		t.Errorf("objects %v, want a at 9", got)
	}
}
