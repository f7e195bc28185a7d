package source_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/internal/source"
)

// short returns the requests of a script, with each list as "LIST".
func (s *script) short() []string {
	var all []string
	for _, r := range s.seen() {
		r = strings.Replace(r, " limit=500", "", 1)
		r = strings.Replace(r, "resourceVersionMatch=", "", 1)
		all = append(all, strings.Replace(r, "resourceVersion=", "", 1))
	}
	return all
}

const tooOld = "too old resource version"

// TestRepair: the end of a watch decides the next request, and the sink sees one continuous stream.
func TestRepair(t *testing.T) {
	t.Parallel()
	c6 := event("ADDED", object("c", 6))
	tooLarge := statusBody(504, "Timeout", "Too large resource version",
		`{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}`)
	cases := map[string]struct {
		reason  string
		watches []reply
		lists   []reply // after the first, which has version 5
		want    []string
		until   string
	}{
		"clean end": {
			"the server's timeoutSeconds",
			[]reply{watchThenEnd(c6), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 6"},
			"9",
		},
		"bookmarks count": {
			"resume at the bookmark",
			[]reply{watchThenEnd(bookmark(8)), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 8"},
			"9",
		},
		"break": {
			"a broken connection needs no list",
			[]reply{watchThenBreak(c6), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 6"},
			"9",
		},
		"410 event": {
			"relist at the last version",
			[]reply{watchThenEnd(c6, event("ERROR", statusBody(410, "Expired", tooOld))), watch(bookmark(9))},
			[]reply{list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "LIST 6 NotOlderThan", "WATCH 7"},
			"9",
		},
		"410 status": {
			"relist at the last version",
			[]reply{status(410, "Gone", tooOld), watch(bookmark(9))},
			[]reply{list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 7"},
			"9",
		},
		"410 in list too": {
			"then a consistent list",
			[]reply{status(410, "Expired", tooOld), watch(bookmark(9))},
			[]reply{status(410, "Expired", tooOld), list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "LIST 5 NotOlderThan", "LIST", "WATCH 7"},
			"9",
		},
		"410 after each list": {
			"escalates to a consistent list",
			[]reply{status(410, "Expired", tooOld), status(410, "Expired", tooOld), watch(bookmark(9))},
			[]reply{list(7, object("a", 1)), list(8, object("a", 1))},
			[]string{"LIST", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 7", "LIST", "WATCH 8"},
			"9",
		},
		"too large": {
			"wait as told, then a consistent list",
			[]reply{watchThenEnd(event("ERROR", tooLarge)), watch(bookmark(9))},
			[]reply{list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "LIST", "WATCH 7"},
			"9",
		},
		"429": {
			"keep the version",
			[]reply{status(429, "TooManyRequests", "slow down"), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"500 event": {
			"watch again",
			[]reply{watchThenEnd(c6, event("ERROR", statusBody(500, "InternalError", "boom"))), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 6"},
			"9",
		},
		"500 for long": {
			"a bounded number of times, then list",
			[]reply{
				status(500, "InternalError", "1"), status(500, "InternalError", "2"),
				status(500, "InternalError", "3"), status(500, "InternalError", "4"), watch(bookmark(9)),
			},
			[]reply{list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "WATCH 5", "WATCH 5", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 7"},
			"9",
		},
		"StoreReadError": {
			"list at once",
			[]reply{watchThenEnd(event("ERROR", statusBody(500, "StoreReadError", "corrupt"))), watch(bookmark(9))},
			[]reply{list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 7"},
			"9",
		},
		"StorageReadError": {
			"as the API server spells it",
			[]reply{watchThenEnd(event("ERROR", statusBody(500, "StorageReadError", "corrupt"))), watch(bookmark(9))},
			[]reply{list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 7"},
			"9",
		},
		"ends at once": {
			"three times is a stale version",
			[]reply{watchThenEnd(), watchThenEnd(), watchThenEnd(), watch(bookmark(9))},
			[]reply{list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "WATCH 5", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 7"},
			"9",
		},
		"404": {
			"a list finds the objects that were deleted with the resource",
			[]reply{status(404, "NotFound", "no such resource"), watch(bookmark(9))},
			[]reply{list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 7"},
			"9",
		},
		"401": {
			"resume with new credentials",
			[]reply{status(401, "Unauthorized", "token expired"), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"403": {
			"resume when the permission is back",
			[]reply{status(403, "Forbidden", "no"), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"502": {
			"a proxy without server",
			[]reply{html(502), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"a bookmark that is no number": {
			"ignored where versions are numbers: resume at the last version",
			[]reply{watchThenEnd(strings.Replace(bookmark(7), `"7"`, `"soon"`, 1)), watch(c6, bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"an object whose version is no number": {
			"it is quarantined, and no watch resumes there",
			[]reply{watchThenEnd(strings.Replace(c6, `"6"`, `"soon"`, 1)), watch(c6, bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"html": {
			"a page instead of a watch",
			[]reply{html(200), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"last frame without newline": {
			"complete: it is delivered",
			[]reply{watchThenEnd(strings.TrimSuffix(c6, "\n")), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 6"},
			"9",
		},
		"incomplete last frame": {
			"dropped and fetched again",
			[]reply{watchThenEnd(c6[:len(c6)-9]), watch(c6, bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"status as frame": {
			"a Status without an event around it",
			[]reply{watchThenEnd(statusBody(410, "Expired", tooOld) + "\n"), watch(bookmark(9))},
			[]reply{list(7, object("a", 1))},
			[]string{"LIST", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 7"},
			"9",
		},
		"other kind": {
			"an object of another kind is not a change",
			[]reply{watchThenEnd(strings.Replace(c6, `"ConfigMap"`, `"Secret"`, 1)), watch(bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"garbage": {
			"a malformed frame is fetched again",
			[]reply{watch(`{"type":"ADDED","object":{]}` + "\n"), watch(c6, bookmark(9))},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"poison frame": {
			"and skipped when it is repeated, if it names its object",
			[]reply{
				watch(event("ADDED", `{"metadata":{"name":"b"]`)),
				watch(event("ADDED", `{"metadata":{"name":"b"]`), c6, bookmark(9)),
			},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5"},
			"9",
		},
		"poison frame without a name": {
			"otherwise a list finds its object",
			[]reply{
				watch(`{"type":"ADDED","object":{]}` + "\n"), watch(`{"type":"ADDED","object":{]}`+"\n", c6),
				watch(c6, bookmark(9)),
			},
			nil,
			[]string{"LIST", "WATCH 5", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 5"},
			"9",
		},
		"poison frame without a name in a poison list": {
			"which does not stop the watch when it cannot be read either",
			[]reply{
				watch(`{"type":"ADDED","object":{]}` + "\n"), watch(`{"type":"ADDED","object":{]}`+"\n", c6),
				watch(c6, bookmark(9)),
			},
			[]reply{body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{]}`)},
			[]string{"LIST", "WATCH 5", "WATCH 5", "LIST 5 NotOlderThan", "WATCH 5"},
			"9",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			lists := append([]reply{list(5, object("a", 1))}, c.lists...)
			serveInBubble(t, lists, c.watches, func(s *script, r *recorder) {
				s.run(r)
				r.wait("the last version", func() bool { return r.version == c.until })
				r.wait("Watching", func() bool { return r.status().Phase == source.Watching })
				if diff := cmp.Diff(c.want, s.short()); diff != "" {
					s.t.Errorf("%s: requests (-want +got):\n%s", c.reason, diff)
				}
			})
		})
	}
}

func TestReplayedEventsAreSuppressed(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	s := serve(t, []reply{list(5, object("a", 1)), list(9)}, []reply{
		watchThenBreak(event("ADDED", object("c", 6)), event("MODIFIED", object("c", 8))),
		watch(event("ADDED", object("c", 6)), event("MODIFIED", object("c", 8)), event("MODIFIED", object("c", 9))),
	})
	src := s.run(r)
	r.wait("version 9", func() bool { return r.version == "9" })
	changes := 0
	for _, line := range r.lines() {
		if strings.Contains(line, "ns/c") {
			changes++
		}
	}
	if changes != 3 {
		t.Errorf("%d changes of c, want 3: %q", changes, r.lines())
	}
	eventually(t, "two suppressed", func() bool { return src.Status()[0].Counters.Suppressed == 2 })
}

// TestSwappedEvents: a late change of one object is not lost when another object has a later version.
func TestSwappedEvents(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	s := serve(t, []reply{list(5, object("a", 1)), list(9)},
		[]reply{watch(event("ADDED", object("c", 7)), event("MODIFIED", object("a", 6)),
			event("MODIFIED", object("c", 6)), event("MODIFIED", object("a", 6)), bookmark(9))})
	s.run(r)
	r.wait("the bookmark", func() bool { return r.version == "9" })
	if got := r.snapshot(); got["ns/a"].version != "6" || got["ns/c"].version != "7" {
		t.Errorf("objects %v, want a at 6 and c at 7", got)
	}
	if n := counted(r.lines(), "MODIFIED"); n != 1 {
		t.Errorf("%d modifications, want 1: %q", n, r.lines())
	}
}

func TestFragmentation(t *testing.T) {
	t.Parallel()
	all := event("ADDED", object("ü\\u00e9", 6)) + "\n\r\n " + event("MODIFIED", object("c", 7)) + bookmark(9)
	for _, size := range []int{1, 2, 7, 64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			s := serve(t, []reply{list(5)}, []reply{func(w http.ResponseWriter, q *http.Request) {
				for rest := all; rest != ""; {
					n := min(size, len(rest))
					fmt.Fprint(w, rest[:n])
					w.(http.Flusher).Flush()
					rest = rest[n:]
				}
				<-q.Context().Done()
			}})
			s.run(r)
			r.wait("the bookmark", func() bool { return r.version == "9" })
			if got := r.snapshot(); len(got) != 2 || len(r.quarantined) != 0 {
				t.Errorf("objects %v", got)
			}
		})
	}
}

func TestHugeObject(t *testing.T) {
	t.Parallel()
	big := strings.Replace(object("big", 6), `}}`, `},"data":{"x":"`+strings.Repeat("0123456789abcdef", 20<<16)+`"}}`, 1)
	for name, s := range map[string]*script{
		"watch": serve(t, []reply{list(5)}, []reply{watch(event("ADDED", big), event("ADDED", object("small", 7)))}),
		"list":  serve(t, []reply{list(7, big, object("small", 7))}, []reply{watch()}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			s.run(r)
			r.wait("both", func() bool { return len(r.objects) == 2 })
			if n := len(r.snapshot()["ns/big"].raw); n != len(big) {
				t.Errorf("%d bytes, want %d", n, len(big))
			}
		})
	}
}

func TestIncomparableVersions(t *testing.T) {
	t.Parallel()
	odd := func(name, version string) string {
		return strings.Replace(object(name, 1), `"1"`, `"`+version+`"`, 1)
	}
	r := newRecorder(t)
	r.odd = true
	s := serve(t, []reply{
		body(strings.Replace(listBody(1, "", odd("a", "x9")), `"1"`, `"zz"`, 1)),
		body(strings.Replace(listBody(1, "", odd("a", "x9")), `"1"`, `"aa"`, 1)),
	},
		[]reply{
			watchThenBreak(event("MODIFIED", odd("a", "yy"))),
			watch(event("MODIFIED", odd("a", "bb")), event("ADDED", odd("b", "cc"))),
		})
	s.run(r)
	r.wait("b", func() bool { return len(r.objects) == 2 })
	if diff := cmp.Diff([]string{"LIST", "WATCH zz", "WATCH yy"}, s.short()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestConditions: every refusal is a typed condition with the server's own message, and recovery clears it.
func TestConditions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		bad     reply
		reason  source.Reason
		message string
		is      func(error) bool
	}{
		"401": {
			status(401, "Unauthorized", "token has expired"), source.ReasonUnauthorized, "token has expired",
			apierrors.IsUnauthorized,
		},
		"403": {
			status(403, "Forbidden", "user x cannot list"), source.ReasonForbidden, "user x cannot list",
			apierrors.IsForbidden,
		},
		"404": {
			status(404, "NotFound", "the server could not find"), source.ReasonNotFound,
			"the server could not find", apierrors.IsNotFound,
		},
		"plain 404": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Error(w, "404 page not found", 404)
			}, source.ReasonNotFound,
			"the server does not serve this resource in this version: is its CustomResourceDefinition installed?", nil,
		},
		"html 403": {html(403), source.ReasonForbidden, "server answered 403: Forbidden", nil},
		"429": {
			status(429, "TooManyRequests", "slow down"), source.ReasonTooManyRequests, "slow down",
			apierrors.IsTooManyRequests,
		},
		"500": {
			status(500, "InternalError", `conversion webhook for x failed: Post "https://x"`), source.ReasonServerError,
			`conversion webhook for x failed: Post "https://x"`, apierrors.IsInternalError,
		},
		"break": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, source.ReasonDisconnected, "",
			nil,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, stage := range []string{"list", "watch"} {
				if stage == "watch" && name == "break" {
					continue // the transport itself retries on a used connection
				}
				r := newRecorder(t)
				lists, watches := []reply{c.bad, list(5)}, []reply{watch(bookmark(9))}
				if stage == "watch" {
					lists, watches = []reply{list(5)}, []reply{c.bad, watch(bookmark(9))}
				}
				s := serve(t, lists, watches)
				s.run(r)
				r.wait("recovery", func() bool { return r.version == "9" && r.status().Phase == source.Watching })
				var bad *source.Status
				for i := range r.statuses {
					if r.statuses[i].Phase == source.Degraded {
						bad = &r.statuses[i]
					}
				}
				if bad == nil || bad.Reason != c.reason || c.message != "" && bad.Message != c.message ||
					c.is != nil && !c.is(bad.Err) {
					t.Errorf("%s: condition %+v, want %s %q", stage, bad, c.reason, c.message)
				}
				if last := r.status(); last.Err != nil || last.Message != "" {
					t.Errorf("%s: recovery left %v", stage, last)
				}
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	s := serve(t, nil, nil)
	s.server.Close()
	src := s.run(r)
	r.wait("Disconnected", func() bool { return r.status().Reason == source.ReasonDisconnected })
	if st := src.Status()[0]; st.Err == nil || st.Synced || !st.LastContact.IsZero() {
		t.Errorf("status %+v", st)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	var refused, came time.Time
	lists := []reply{func(w http.ResponseWriter, q *http.Request) {
		refused = time.Now()
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(429)
	}, func(w http.ResponseWriter, q *http.Request) {
		came = time.Now()
		list(5)(w, q)
	}}
	serveInBubble(t, lists, []reply{watch(bookmark(9))}, func(s *script, r *recorder) {
		s.run(r)
		r.wait("recovery", func() bool { return r.version == "9" })
		if d := came.Sub(refused); d < 7*time.Second {
			s.t.Errorf("came again after %v", d)
		}
	})
}

// TestSilentWatch uses the default silence budget, so that a slow machine causes no extra requests.
func TestSilentWatch(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		inBubble(t, []reply{list(5, object("a", 1))}, []reply{watch()}, 3*source.DefaultSilenceBudget+time.Minute,
			func(t *testing.T, s *script, r *recorder, src *source.Source) {
				if n := src.Status()[0].Counters.Probes; n < 3 {
					t.Errorf("%d probes, want three", n)
				}
				for _, req := range s.short()[2:] {
					if req != "LIST limit=1" {
						t.Errorf("an idle watch made a request %q", req)
					}
				}
				if r.commits != 1 {
					t.Errorf("%d commits", r.commits)
				}
			})
	})
	t.Run("resume helps", func(t *testing.T) {
		lists := []reply{list(5, object("a", 1)), list(9)}
		serveInBubble(t, lists, []reply{watch(), watch(event("MODIFIED", object("a", 9)))}, func(s *script, r *recorder) {
			s.run(r)
			r.wait("the change", func() bool { return r.version == "9" })
			if diff := cmp.Diff([]string{"LIST", "WATCH 5", "LIST limit=1", "WATCH 5"}, s.short()); diff != "" {
				s.t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("dead", func(t *testing.T) {
		lists := []reply{list(5, object("a", 1)), list(9), list(9, object("a", 9))}
		serveInBubble(t, lists, []reply{watch()}, func(s *script, r *recorder) {
			s.run(r)
			r.wait("the list", func() bool { return r.version == "9" })
			if diff := cmp.Diff([]string{"LIST", "WATCH 5", "LIST limit=1", "WATCH 5", "LIST 5 NotOlderThan"},
				s.short()[:5]); diff != "" {
				s.t.Errorf("requests (-want +got):\n%s", diff)
			}
			if !r.reported(source.Degraded, source.ReasonSilent, source.ErrSilent) {
				s.t.Errorf("no condition Silent: %q", r.lines())
			}
		})
	})
}

func TestMaxWatch(t *testing.T) {
	lists, watches := []reply{list(5, object("a", 1))}, []reply{watch(bookmark(8)), watch(bookmark(9))}
	serveInBubble(t, lists, watches, func(s *script, r *recorder) {
		s.run(r, func(c *source.Config) { c.MaxWatch = time.Minute })
		r.wait("the second watch", func() bool { return r.version == "9" })
		if diff := cmp.Diff([]string{"LIST", "WATCH 5", "WATCH 8"}, s.short()); diff != "" {
			s.t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestResumesFromTheKnownVersion(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	r.version = "7"
	s := serve(t, nil, []reply{watch(bookmark(9))})
	s.run(r)
	r.wait("the bookmark", func() bool { return r.version == "9" })
	if diff := cmp.Diff([]string{"WATCH 7"}, s.short()[:1]); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
