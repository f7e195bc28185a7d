package source

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func byPages(c *Config) { c.NoWatchList = true }

// TestListerCommitsPages: all pages have one version, and the position follows it.
func TestListerCommitsPages(t *testing.T) {
	t.Parallel()
	r := newFixture(t, partConfig(byPages), podList("5", "t1", item("a", "1")), podList("5", "", item("b", "4")))
	st, err := r.lister().sync(t.Context(), listOf{consistent: true, reason: "why"})
	if err != nil || st != nil {
		t.Fatalf("stream %v, error %v", st, err)
	}
	if diff := cmp.Diff([]string{"put a", "put b", "commit 5"}, r.sink.calls); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"starts", "opened", "opened", "synced"}, r.steps.without("contact")); diff != "" {
		t.Errorf("progress, -want +got:\n%s", diff)
	}
	if string(r.pos.version()) != "5" || r.counts.Lists != 1 || len(r.server.queries) != 2 ||
		r.server.queries[1].next != "t1" {
		t.Errorf("version %s, %d lists, requests %+v", r.pos.version(), r.counts.Lists, r.server.queries)
	}
}

// TestListerKeepsTheContent: a failed list is aborted, and the position stays.
func TestListerKeepsTheContent(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		bodies []string
		want   error
	}{
		"older than the version seen": {[]string{podList("4", "", item("a", "1"))}, ErrStale},
		"cut":                         {[]string{podList("9", "", item("a", "1"))[:60]}, nil},
		"repeats a token": {[]string{
			podList("9", "t", item("a", "1")),
			podList("9", "t", item("b", "1")),
		}, nil},
		"repeats a page": {[]string{
			podList("9", "t", item("a", "1"), item("b", "1")),
			podList("9", "u", item("c", "1")),
			podList("9", "v", item("a", "1"), item("b", "1")),
			podList("9", "", item("d", "1")),
		}, nil},
		"another kind":                        {[]string{`{"kind":"SecretList","apiVersion":"v2","metadata":{"resourceVersion":"9"},"items":[]}`}, nil},
		"empty, and empty over a new request": {[]string{podList("9", ""), podList("4", "")}, nil},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, partConfig(byPages), c.bodies...)
			r.sink.count, r.sink.miss = 3, 3
			r.pos.complete("5")
			_, err := r.lister().sync(t.Context(), listOf{})
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if r.counts.ListErrors != 1 {
				t.Errorf("%d list errors, want 1", r.counts.ListErrors)
			}
			if last := r.sink.calls[len(r.sink.calls)-1]; last != "abort" || string(r.pos.version()) != "5" {
				t.Errorf("calls %q, version %s", r.sink.calls, r.pos.version())
			}
		})
	}
}

// TestListerConfirms: a list that would delete all objects is repeated as a consistent read over a new connection.
func TestListerConfirms(t *testing.T) {
	t.Parallel()
	r := newFixture(t, partConfig(byPages), podList("9", ""), podList("9", ""))
	r.sink.count, r.sink.miss = 3, 3
	r.pos.complete("5")
	if _, err := r.lister().sync(t.Context(), listOf{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"abort", "commit 9"}, r.sink.calls); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
	if q := r.server.queries; len(q) != 2 || q[0].version != "5" || q[1].version != "" || r.reopens != 1 {
		t.Errorf("requests %+v over %d new connections", q, r.reopens)
	}
}

// TestListerRecognizesARollback: two consistent reads below the version seen are another history.
func TestListerRecognizesARollback(t *testing.T) {
	t.Parallel()
	r := newFixture(t, partConfig(byPages), podList("3", "", item("a", "1")), podList("4", ""))
	r.pos.complete("5")
	if _, err := r.lister().sync(t.Context(), listOf{consistent: true}); err != nil {
		t.Fatal(err)
	}
	if r.counts.Epochs != 1 || string(r.pos.version()) != "3" || r.reopens != 1 {
		t.Errorf("%d epochs, version %s, %d new connections", r.counts.Epochs, r.pos.version(), r.reopens)
	}
}

// TestListerUsesInitialEvents: it returns the open watch. A server that refuses them is not asked again.
func TestListerUsesInitialEvents(t *testing.T) {
	t.Parallel()
	end := `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}`
	r := newFixture(t, partConfig(), frameOf("ADDED", item("a", "1"))+frameOf("BOOKMARK", end))
	st, err := r.lister().sync(t.Context(), listOf{})
	if err != nil || st == nil {
		t.Fatalf("stream %v, error %v", st, err)
	}
	st.close()
	if diff := cmp.Diff([]string{"put a", "commit 7"}, r.sink.calls); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}

	r = newFixture(t, partConfig(), frameOf("ADDED", item("a", "1"))+frameOf("BOOKMARK", end))
	r.pos.complete("9")
	if _, err := r.lister().sync(t.Context(), listOf{}); !errors.Is(err, ErrStale) || r.counts.ListErrors != 1 {
		t.Errorf("initial events older than the version seen: error %v, %d list errors, want 1", err, r.counts.ListErrors)
	}

	unended := frameOf("ADDED", item("a", "1"))
	r = newFixture(t, partConfig(), unended, podList("5", "", item("a", "1")), podList("6", "", item("a", "1")))
	l := r.lister()
	for range 2 {
		if st, err := l.sync(t.Context(), listOf{}); st != nil || err == nil && r.counts.Lists == 0 {
			t.Fatalf("stream %v, error %v", st, err)
		}
	}
	if q := r.server.queries; len(q) != 3 || !q[0].watch || q[1].watch || q[2].watch {
		t.Errorf("requests %+v, want one watch and two lists", q)
	}
}
