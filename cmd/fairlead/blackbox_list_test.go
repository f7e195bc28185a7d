package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// first answers the first n matching requests, and leaves all others to the server.
func first(
	n int32, meant func(*wireRequest) bool, answer http.HandlerFunc,
) func(http.ResponseWriter, *wireRequest) bool {
	var count atomic.Int32
	return func(w http.ResponseWriter, r *wireRequest) bool {
		if !meant(r) || count.Add(1) > n {
			return false
		}
		answer(w, r.http)
		return true
	}
}

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, text)
	}
}

func refusing(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { refuse(w, code, reason) }
}

const always = 1 << 30

// TestBlackboxList disturbs the first list as servers and proxies do. At the end all objects are shown once, and no
// others.
func TestBlackboxList(t *testing.T) {
	t.Parallel()
	initial, list := (*wireRequest).initial, (*wireRequest).list
	later := func(r *wireRequest) bool { return r.list() && r.query.Has("continue") }
	noInitial := func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
		return first(always, initial, refusing(422, "Invalid"))
	}
	tests := map[string]struct {
		reason  string
		take    func(s *wire) func(http.ResponseWriter, *wireRequest) bool
		flags   []string
		status  string // a STATUS before SYNCED whose message contains this
		message string
		check   func(t *testing.T, s *wire)
	}{
		"WatchList": {reason: "Initial events need one request.", check: func(t *testing.T, s *wire) {
			if n := s.count(list); n != 0 {
				t.Errorf("%d lists", n)
			}
		}},
		"Refused422": {
			reason: "Without the feature the program reads pages.", take: noInitial, flags: []string{"--page-size", "2"},
			check: func(t *testing.T, s *wire) {
				if n := s.count(later); n != 1 {
					t.Errorf("%d later pages, want 1", n)
				}
				if n := s.count(func(r *wireRequest) bool {
					return later(r) && (r.query.Has("resourceVersion") || r.query.Has("resourceVersionMatch"))
				}); n != 0 {
					t.Errorf("%d later pages with a version", n)
				}
			},
		},
		"Refused400": {
			reason: "Other servers say 400.",
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(always, initial, refusing(400, "BadRequest"))
			},
		},
		"NoWatchList": {
			reason: "The flag disables initial events.", flags: []string{"--no-watch-list"},
			check: func(t *testing.T, s *wire) {
				if n := s.count(initial); n != 0 {
					t.Errorf("%d requests for initial events", n)
				}
			},
		},
		"Ignored": {
			reason: "An old server treats it as a watch without a version, and never ends the initial events.",
			flags:  []string{"--list-progress-timeout", "300ms"},
			take: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return func(w http.ResponseWriter, r *wireRequest) bool {
					if !r.initial() {
						return false
					}
					r.query.Del("sendInitialEvents")
					r.query.Del("resourceVersion")
					s.serve(w, r)
					return true
				}
			},
		},
		"IgnoredInSilence": {
			reason: "An old server without changes may never send anything.",
			flags:  []string{"--list-progress-timeout", "300ms"},
			take: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return func(w http.ResponseWriter, r *wireRequest) bool {
					if r.initial() {
						s.hold(w, r)
					}
					return r.initial()
				}
			},
		},
		"OrdinaryBookmarks": {
			reason: "Only the bookmark with the annotation ends the initial events.",
			flags:  []string{"--list-progress-timeout", "300ms"},
			take: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return func(w http.ResponseWriter, r *wireRequest) bool {
					if r.initial() {
						_, _ = fmt.Fprint(w, bookmark(5000, false))
						_, _ = fmt.Fprint(w, strings.Replace(bookmark(5000, true), `"true"`, `"false"`, 1))
						s.hold(w, r)
					}
					return r.initial()
				}
			},
		},
		"InitialCut": {
			reason: "Initial events that end early are not a complete list.",
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(always, initial, body(frame("ADDED", wireConfigMap("x/ghost", "7", "u", ""))))
			},
		},
		"ChangesBeforeTheEnd": {
			reason: "MODIFIED and DELETED before the bookmark count, and are no events.",
			take: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return func(w http.ResponseWriter, r *wireRequest) bool {
					if !r.initial() {
						return false
					}
					ghost := wireConfigMap("x/ghost", "7", "u", "")
					old := wireConfigMap("a/one", "8", "uid-1003", "old")
					_, _ = fmt.Fprint(w, frame("ADDED", ghost), frame("ADDED", old), bookmark(9, false),
						frame("MODIFIED", wireConfigMap("x/ghost", "10", "u", "")),
						frame("DELETED", wireConfigMap("x/ghost", "11", "u", "")))
					for _, o := range s.list("") {
						kind := "ADDED"
						if o.key == "a/one" {
							kind = "MODIFIED"
						}
						_, _ = fmt.Fprint(w, frame(kind, o.raw))
					}
					_, _ = fmt.Fprint(w, bookmark(s.version, true))
					s.follow(w, r, "", s.version, time.Minute)
					return true
				}
			},
		},
		"TokenExpires": {
			reason: "The list starts again.", flags: []string{"--page-size", "1", "--no-watch-list"},
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(2, later, refusing(410, "Expired"))
			},
		},
		"TokenAlwaysExpires": {
			reason: "At last it is listed without pages; the inconsistent token gives no snapshot.",
			flags:  []string{"--page-size", "1", "--no-watch-list"},
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(always, later, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(410)
					_, _ = fmt.Fprint(w,
						`{"kind":"Status","apiVersion":"v1","metadata":{"continue":"inconsistent"},`+
							`"status":"Failure","reason":"Expired","code":410}`)
				})
			},
			check: func(t *testing.T, s *wire) {
				again := func(r *wireRequest) bool { return r.query.Get("continue") == "inconsistent" }
				if n := s.count(again); n != 0 {
					t.Errorf("the inconsistent token was used %d times", n)
				}
				if n := s.count(list); n > 8 {
					t.Errorf("%d lists", n)
				}
			},
		},
		"Html": {
			reason: "A page of a proxy, with status 200.", status: "ProtocolError",
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(4, func(*wireRequest) bool { return true }, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/html")
					_, _ = fmt.Fprint(w, "<!DOCTYPE html><html><body>Please log in</body></html>")
				})
			}, message: "text/html",
		},
		"Table": {
			reason: "A Table is not the requested list.", status: "ProtocolError", flags: []string{"--no-watch-list"},
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, list,
					body(
						`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"2000"},`+
							`"columnDefinitions":[],"rows":[]}`,
					))
			},
		},
		"NoVersion": {
			reason: "A list without version cannot be watched from.", status: "ProtocolError",
			flags: []string{"--no-watch-list"},
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, list, body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[`+
					wireConfigMap("x/ghost", "7", "u", "")+`]}`))
			},
		},
		"OneObject": {
			reason: "A single object is not a list.", status: "ProtocolError", flags: []string{"--no-watch-list"},
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, list, body(wireConfigMap("x/ghost", "7", "u", "")))
			},
		},
		"StatusWith200": {
			reason: "A Status is a refusal even with HTTP status 200.", status: "ServerError",
			flags: []string{"--no-watch-list"},
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, list, body(wireStatus(500, "InternalError", "")))
			},
		},
		"Cut": {
			reason: "A body that ends early.", status: "ProtocolError", flags: []string{"--no-watch-list"},
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, list,
					body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"2000"},"items":[`+
						wireConfigMap("x/ghost", "7", "u", "")+`,{"metadata":{"na`))
			},
		},
		"SecondPageCut": {
			reason: "No part of an incomplete list is applied.", flags: []string{
				"--no-watch-list",
				"--page-size", "1",
			},
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(9, later,
					body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"2000"},"items":[`))
			},
		},
		"Unauthorized": {
			reason: "401 with text of a proxy.", status: "Unauthorized",
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, func(*wireRequest) bool { return true },
					func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you", 401) })
			},
		},
		"Forbidden": {
			reason: "403 with HTML.", status: "Forbidden",
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(4, func(*wireRequest) bool { return true }, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/html")
					w.WriteHeader(403)
					_, _ = fmt.Fprint(w, "<html>no</html>")
				})
			},
		},
		"NotFound": {
			reason: "404 with plain text.", status: "NotFound",
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, func(*wireRequest) bool { return true },
					func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
			},
		},
		"Busy": {
			reason: "429.", status: "TooManyRequests",
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(2, func(*wireRequest) bool { return true }, refusing(429, "TooManyRequests"))
			},
		},
		"Broken": {
			reason: "500, then 503 without a body.", status: "ServerError", flags: []string{"--no-watch-list"},
			take: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, list, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
			},
		},
		"Stalled": {
			reason: "A list without progress is canceled.", status: "Stalled",
			flags: []string{"--no-watch-list", "--list-progress-timeout", "200ms"},
			take: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(1, list, func(w http.ResponseWriter, r *http.Request) {
					_, _ = fmt.Fprint(w, `{"kind":"ConfigMapList",`)
					s.hold(w, &wireRequest{http: r})
				})
			},
		},
		"NoAnswer": {
			reason: "So is one without an answer.", status: "Stalled",
			flags: []string{"--no-watch-list", "--list-progress-timeout", "200ms"},
			take: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(1, list, func(_ http.ResponseWriter, r *http.Request) {
					select {
					case <-r.Context().Done():
					case <-s.ended:
					}
				})
			},
		},
		"Slow": {
			reason: "A list with progress has no time limit.",
			flags:  []string{"--no-watch-list", "--list-progress-timeout", "5s"},
			take: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(1, list, func(w http.ResponseWriter, _ *http.Request) {
					text := fmt.Sprintf(
						`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s,`+
							`%s,%s]}`,
						s.version, s.objects["a/one"].raw, s.objects["a/two"].raw, s.objects["b/three"].raw,
					)
					for i := 0; i < len(text); i += 40 {
						_, _ = fmt.Fprint(w, text[i:min(len(text), i+40)])
						w.(http.Flusher).Flush()
						pause(s, 400*time.Millisecond) // much less than the timeout each time, but more in total
					}
				})
			},
			check: func(t *testing.T, s *wire) {
				if n := s.count(list); n != 1 {
					t.Errorf("%d lists, want 1", n)
				}
			},
		},
		"Reordered": {
			reason: "Members come in any order, items first and with their metadata last.",
			flags:  []string{"--no-watch-list"},
			take: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(1, list, func(w http.ResponseWriter, _ *http.Request) {
					one, two, three := s.objects["a/one"].raw, s.objects["a/two"].raw, s.objects["b/three"].raw
					_, _ = fmt.Fprintf(w,
						"\n {\"items\" :\n[ %s ,\t%s,\r\n%s ] , \"more\":{\"a\":[]}, "+
							"\"metadata\":{\"resourceVersion\":\"%d\"} ,\"apiVersion\":\"v1\","+
							"\"kind\":\"ConfigMapList\"}\n\n",
						one, two, three, s.version)
				})
			},
		},
		"Duplicates": {
			reason: "Overlapping pages contain an object twice.", flags: []string{"--no-watch-list"},
			take: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(1, list, func(w http.ResponseWriter, _ *http.Request) {
					one, two, three := s.objects["a/one"].raw, s.objects["a/two"].raw, s.objects["b/three"].raw
					_, _ = fmt.Fprintf(w,
						`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s,`+
							`%s,%s,%s,%s]}`,
						s.version, one, two, two, one, three)
				})
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWire(t)
			for _, key := range []string{"a/one", "a/two", "b/three"} {
				s.put(key, "first")
			}
			if tc.take != nil {
				s.take = tc.take(s)
			}
			p := startProgram(t, s.url, tc.flags...)
			if l := p.synced(); l.number("count") != 3 || l.version != fmt.Sprint(s.version) || len(p.state) != 3 {
				t.Errorf("%s\n%v, with %v; want 3 objects at %d", tc.reason, l, p.state, s.version)
			}
			for _, l := range p.all {
				if l.kind == "ADDED" && string(l.members["initial"]) != "true" || l.kind == "MODIFIED" ||
					l.kind == "DELETED" {
					t.Errorf("%s\nnot an initial object: %v", tc.reason, l)
				}
			}
			s.put("a/one", "second")
			s.remove("b/three")
			s.put("b/four", "first")
			if l := p.event("ADDED", "b/four"); l.members["initial"] != nil {
				t.Errorf("initial after SYNCED: %v", l)
			}
			p.agrees(s)
			if tc.check != nil {
				tc.check(t, s)
			}
			if tc.status != "" {
				p.watches()
				if l, had := p.degraded(tc.status); !had || !strings.Contains(l.text("message"), tc.message) {
					t.Errorf("%s\nno STATUS %s with a message in %v", tc.reason, tc.status, p.all)
				}
			}
			p.finish()
			if n := p.countOf("SYNCED"); n != 1 {
				t.Errorf("%d SYNCED", n)
			}
		})
	}
}

// pause delays an answer, as slow servers do.
func pause(s *wire, d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ended:
	}
}
