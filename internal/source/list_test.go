package source_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/source"
)

func objects(n, version int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = object(fmt.Sprintf("o%03d", i), version)
	}
	return all
}

func TestExpiredContinueTokenRestartsTheList(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	expired := status(410, "Expired", "continue token expired")
	s := serve(t, []reply{
		page(5, "t1", object("old", 1)), expired, page(8, "t2", object("a", 6)), expired,
		list(9, object("b", 7)),
	},
		[]reply{watch()})
	s.run(r, func(c *source.Config) { c.PageSize = 1 })
	r.wait("the watch", func() bool { return r.status().Phase == source.Watching })
	if got := r.snapshot(); len(got) != 1 || got["ns/b"].version != "7" {
		t.Errorf("objects %v, want b alone: no partial list may be applied", got)
	}
	want := []string{"LIST limit=1", "LIST continue=t1 limit=1", "LIST limit=1", "LIST continue=t2 limit=1", "LIST"}
	if diff := cmp.Diff(want, s.seen()[:5]); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestPageIsRetriedWithItsToken(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	s := serve(t, []reply{
		page(5, "t1", object("a", 1)), status(503, "ServiceUnavailable", "restarting"),
		page(5, "", object("b", 2)),
	},
		[]reply{watch()})
	s.run(r, func(c *source.Config) { c.PageSize = 1 })
	r.wait("the list", func() bool { return len(r.objects) == 2 })
	if n := r.commits; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
}

// TestBadListChangesNothing: a malformed list is a typed error and deletes nothing, and the source recovers.
func TestBadListChangesNothing(t *testing.T) {
	t.Parallel()
	good := listBody(9, "", object("a", 1))
	cases := map[string]struct {
		reason string
		bad    reply
	}{
		"cut":            {"a cut body ends in the middle", cutBody(good, len(good)-10)},
		"cut in an item": {"a cut body ends in an item", cutBody(good, strings.Index(good, "uid"))},
		"ended early":    {"a body that ends in the middle without an error of the transport", body(good[:len(good)-2])},
		"empty":          {"no body at all", body("")},
		"html":           {"a page of a proxy", html(200)},
		"table": {
			"a Table", body(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"rows":[]}`),
		},
		"object": {"a single object", body(object("a", 3))},
		"other kind": {
			"a list of another kind than before",
			body(strings.Replace(good, "ConfigMapList", "SecretList", 1)),
		},
		"no version": {
			"a list without resource version",
			body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}`),
		},
		"kind at the end": {
			"a Status whose kind comes last",
			body(`{"items":[],"metadata":{"resourceVersion":"9"},"kind":"Foo"}`),
		},
		"items no array": {
			"items of another type",
			body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":{}}`),
		},
		"trailing":       {"bytes behind the list", body(good + "x")},
		"malformed item": {"an item that is not JSON", body(strings.Replace(good, `"namespace"`, `namespace`, 1))},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			s := serve(t, []reply{list(5, object("a", 1), object("b", 2)), c.bad, list(9, object("a", 1))},
				[]reply{watchThenEnd(event("ERROR", statusBody(410, "Expired", "too old"))), watch(bookmark(12))})
			s.run(r)
			r.wait("recovery", func() bool { return r.version == "12" })
			r.wait("Watching", func() bool { return r.status().Phase == source.Watching })
			var protocol *source.ProtocolError
			found := false
			for _, st := range r.statuses {
				found = found || st.Reason == source.ReasonProtocolError && st.Phase == source.Degraded &&
					errors.As(st.Err, &protocol)
			}
			if !found {
				t.Errorf("%s: no protocol error among %q", c.reason, r.lines())
			}
			if len(r.snapshot()) != 1 {
				t.Errorf("objects %v", r.snapshot())
			}
		})
	}
}

func cutBody(text string, n int) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		fmt.Fprint(w, text[:n])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func html(code int) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		fmt.Fprint(w, "<html><body>Please log in</body></html>")
	}
}

func TestEmptyListIsConfirmed(t *testing.T) {
	t.Parallel()
	expired := watchThenEnd(event("ERROR", statusBody(410, "Expired", "too old")))
	t.Run("refuted", func(t *testing.T) {
		t.Parallel()
		r := newRecorder(t)
		s := serve(t, []reply{list(5, objects(3, 1)...), list(9), list(10, objects(3, 1)...)},
			[]reply{expired, watch(bookmark(20))})
		s.run(r)
		r.wait("the bookmark", func() bool { return r.version == "20" })
		if n := len(r.snapshot()); n != 3 {
			t.Errorf("%d objects, want 3", n)
		}
		if got := s.seen()[3]; got != "LIST limit=500" {
			t.Errorf("confirming request is %q, want a consistent list", got)
		}
	})
	t.Run("confirmed", func(t *testing.T) {
		t.Parallel()
		r := newRecorder(t)
		s := serve(t, []reply{list(5, objects(3, 1)...), list(9), list(10)}, []reply{expired, watch(bookmark(20))})
		s.run(r)
		r.wait("the bookmark", func() bool { return r.version == "20" })
		if n := len(r.snapshot()); n != 0 {
			t.Errorf("%d objects, want none", n)
		}
	})
	t.Run("trusted", func(t *testing.T) {
		t.Parallel()
		r := newRecorder(t)
		s := serve(t, []reply{list(5, objects(3, 1)...), list(9)}, []reply{expired, watch(bookmark(20))})
		s.run(r, func(c *source.Config) { c.TrustEmptyList = true })
		r.wait("the bookmark", func() bool { return r.version == "20" })
		if n := len(s.seen()); n != 4 {
			t.Errorf("requests %q, want no confirmation", s.seen())
		}
	})
}

// TestShorterListConfirmsNothing: a list with an empty page is followed by a complete list with fewer objects. It does
// not confirm the first, and the source lists again.
func TestShorterListConfirmsNothing(t *testing.T) {
	t.Parallel()
	expired := watchThenEnd(event("ERROR", statusBody(410, "Expired", "too old")))
	for name, second := range map[string][]reply{
		"a page is empty": {page(10, "n", objects(2, 1)...), page(10, "")},
		"it is empty":     {list(10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			lists := []reply{list(5, objects(6, 1)...), page(9, "n", objects(6, 1)...), page(9, "")}
			lists = append(append(lists, second...), list(11, objects(6, 1)...))
			s := serve(t, lists, []reply{expired, watch(bookmark(20))})
			s.run(r)
			r.wait("the bookmark", func() bool { return r.version == "20" })
			if n := len(r.snapshot()); n != 6 {
				t.Errorf("%d objects, want 6", n)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if slices.ContainsFunc(r.log, func(l string) bool { return strings.HasPrefix(l, "COMMIT 10 ") }) {
				t.Errorf("the shorter list was committed: %q", r.log)
			}
		})
	}
}

func TestBulkDeleteGuard(t *testing.T) {
	t.Parallel()
	expired := watchThenEnd(event("ERROR", statusBody(410, "Expired", "too old")))
	cases := map[string]struct {
		reason string
		guard  int
		second reply
		left   int
		lists  int
	}{
		"confirmed": {"two lists agree", 5, list(10, objects(2, 1)...), 2, 3},
		"refuted":   {"the second list has them all", 5, list(10, objects(20, 1)...), 20, 3},
		"below":     {"fewer than the guard", 18, list(10, objects(20, 1)...), 2, 2},
		"off":       {"no guard", -1, list(10, objects(20, 1)...), 2, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			s := serve(t, []reply{list(5, objects(20, 1)...), list(9, objects(2, 1)...), c.second},
				[]reply{expired, watch(bookmark(20))})
			s.run(r, func(cfg *source.Config) { cfg.BulkDeleteGuard = c.guard })
			r.wait("the bookmark", func() bool { return r.version == "20" })
			if n := len(r.snapshot()); n != c.left {
				t.Errorf("%s: %d objects left, want %d", c.reason, n, c.left)
			}
			if n := len(s.seen()) - 2; n != c.lists {
				t.Errorf("%s: %d lists, want %d", c.reason, n, c.lists)
			}
		})
	}
}

func TestWatchListFallsBack(t *testing.T) {
	t.Parallel()
	some := event("ADDED", object("partial", 3))
	cases := map[string]struct {
		reason string
		first  reply
		probe  bool // whether the source probes for a newer version first
	}{
		"422":          {"feature off", status(422, "Invalid", "sendInitialEvents is forbidden"), false},
		"400":          {"old server", status(400, "BadRequest", "resourceVersionMatch is forbidden for watch"), false},
		"403":          {"no right to watch this way", status(403, "Forbidden", "cannot watch"), false},
		"500":          {"server error", status(500, "InternalError", "boom"), false},
		"ends early":   {"stream ends before the bookmark", watchThenEnd(some), false},
		"breaks early": {"stream breaks before the bookmark", watchThenBreak(some), false},
		"no bookmark":  {"end bookmark never comes", watch(some, bookmark(4)), true},
		"wrong bookmark": {
			"an annotation that is not true ends nothing",
			watch(some, strings.Replace(initialEnd(4), `"true"`, `"false"`, 1)), true,
		},
		"list instead": {"a proxy drops the query", body(listBody(7, "", object("partial", 3))), false},
		"internal in-stream": {
			"an error event", watchThenEnd(some, event("ERROR", statusBody(500, "InternalError", "boom"))),
			false,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			lists, watches := []reply{list(5, object("a", 1))}, []reply{c.first, watch(bookmark(9))}
			serveInBubble(t, lists, watches, func(s *script, r *recorder) {
				s.run(r, func(cfg *source.Config) { cfg.NoWatchList = false })
				r.wait("the bookmark", func() bool { return r.version == "9" })
				if got := r.snapshot(); len(got) != 1 || got["ns/a"].version != "1" {
					s.t.Errorf("%s: objects %v, want a alone", c.reason, got)
				}
				want := []string{
					"WATCH resourceVersionMatch=NotOlderThan sendInitialEvents=true", "LIST limit=1", "LIST limit=500",
					"WATCH resourceVersion=5",
				}
				if !c.probe {
					want = slices.Delete(want, 1, 2)
				}
				if diff := cmp.Diff(want, s.seen()); diff != "" {
					s.t.Errorf("%s: requests (-want +got):\n%s", c.reason, diff)
				}
			})
		})
	}
}

func TestStalledListIsRetriedOnANewConnection(t *testing.T) {
	var first, second string
	stuck := func(w http.ResponseWriter, q *http.Request) {
		first = q.RemoteAddr
		fmt.Fprint(w, `{"kind":"ConfigMapList","items":[`)
		w.(http.Flusher).Flush()
		<-q.Context().Done()
	}
	good := func(w http.ResponseWriter, q *http.Request) {
		second = q.RemoteAddr
		list(5, object("a", 1))(w, q)
	}
	serveInBubble(t, []reply{stuck, good}, []reply{watch()}, func(s *script, r *recorder) {
		s.run(r)
		r.wait("Watching", func() bool { return r.status().Phase == source.Watching })
		if !r.reported(source.Degraded, source.ReasonStalled, source.ErrStalled) {
			s.t.Errorf("no condition Stalled: %q", r.lines())
		}
		if first == "" || first == second {
			s.t.Errorf("the retry used the stuck connection, %q", first)
		}
	})
}

func TestPoisonObjectIsQuarantined(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	bad := strings.Replace(object("bad", 3), `"namespace"`, `"labels":{"a":7},"namespace"`, 1)
	s := serve(t, []reply{list(5, object("a", 1), bad, object("b", 2))},
		[]reply{watch(event("MODIFIED", strings.Replace(bad, `"3"`, `"6"`, 1)),
			event("ADDED", `{"metadata":{"resourceVersion":"7"}}`), event("ADDED", object("c", 8)))})
	s.run(r)
	r.wait("c", func() bool { return r.version == "8" })
	if got := r.snapshot(); len(got) != 3 {
		t.Errorf("objects %v, want a, b and c", got)
	}
	if len(r.quarantined) != 3 {
		t.Fatalf("quarantined %v, want 3", r.quarantined)
	}
	q := r.quarantined[1]
	var field *source.FieldError
	if q.Key() != "ns/bad" || q.UID != "u-bad" || q.Version != "6" || !errors.As(q.Err, &field) ||
		!strings.Contains(string(q.Raw), `"a":7`) {
		t.Errorf("quarantined %+v", q)
	}
}

func TestLaggingReplicaIsRefused(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	r.version, r.objects = "100", map[string]held{"ns/a": {"u-a", "90", ""}, "ns/b": {"u-b", "95", ""}}
	s := serve(t, []reply{
		list(80, object("a", 70)), list(85, object("a", 70)), list(120),
		list(130, object("a", 90), object("b", 95), object("c", 110)),
	},
		[]reply{status(410, "Expired", "too old"), watch()})
	s.run(r)
	r.wait("the list", func() bool { return len(r.objects) == 3 })
	for _, line := range r.lines() {
		if strings.HasPrefix(line, "EPOCH") {
			t.Error("one older answer was accepted")
		}
	}
	if r.commits != 1 {
		t.Errorf("%d commits, want 1", r.commits)
	}
}

func TestRollbackNeedsTwoAnswers(t *testing.T) {
	t.Parallel()
	detect := map[string]struct {
		reason  string
		watches []reply
		lists   []reply
	}{
		"list":     {"a list after 410 is older", []reply{status(410, "Expired", "x")}, []reply{list(50, object("a", 40))}},
		"bookmark": {"a bookmark goes down", []reply{watch(bookmark(45))}, nil},
		"event":    {"an event goes down", []reply{watch(event("MODIFIED", object("a", 45)))}, nil},
		"silence":  {"the probe of a silent watch", []reply{watch()}, nil},
	}
	for name, c := range detect {
		t.Run(name, func(t *testing.T) {
			lists := append(c.lists, list(50, object("a", 40)))
			watches := append(c.watches, watch(event("ADDED", object("c", 51))))
			serveInBubble(t, lists, watches, func(s *script, r *recorder) {
				r.version, r.objects = "100", map[string]held{"ns/a": {"u-a", "90", ""}, "ns/b": {"u-b", "95", ""}}
				s.run(r)
				r.wait("the new history", func() bool { return r.version == "51" })
				if n := counted(r.lines(), "EPOCH"); n != 1 {
					s.t.Errorf("%s: %d epochs, want 1: %q", c.reason, n, r.lines())
				}
				if got := r.snapshot(); len(got) != 2 || got["ns/a"].version != "40" {
					s.t.Errorf("%s: objects %v", c.reason, got)
				}
			})
		})
	}
}
