package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func (r *wireRequest) resume() bool { return r.watch() && !r.initial() }

// relists counts the requests for the whole content after the first one.
func (s *wire) relists() int {
	return s.count(func(r *wireRequest) bool {
		return r.initial() || r.list() && !r.probe() && !r.query.Has("continue")
	}) - 1
}

// expiry makes a history expire. While it is true, no watch resumes until the whole content is requested again. One
// refusal is not enough, since the program may have canceled that request at the end of its watch.
type expiry struct{ atomic.Bool }

// refuses answers a request that needs the expired history.
func (x *expiry) refuses(w http.ResponseWriter, r *wireRequest) bool {
	switch {
	case r.resume() && x.Load():
		refuse(w, 410, "Expired")
		return true
	case r.initial() || r.list() && !r.probe():
		x.Store(false)
	}
	return false
}

// cutOff closes the connection of an answer in the middle.
func cutOff(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close() // no goroutine waits for it
	}
}

// TestBlackboxWatch ends the first watch as soon as changes can be lost. It answers the next ones as servers and
// proxies do. Both sides end with the same state, with no more lists than needed.
func TestBlackboxWatch(t *testing.T) {
	t.Parallel()
	resume := (*wireRequest).resume
	tests := map[string]struct {
		reason  string
		resumed func(s *wire) func(w http.ResponseWriter, r *wireRequest) bool // answers the watches after the first
		compact bool
		relists int // at most
		fewest  int
		status  string
		flags   []string
	}{
		"Cut":     {reason: "A cut connection resumes at the last version."},
		"Expired": {reason: "410 as HTTP status.", compact: true, relists: 1, fewest: 1},
		"ExpiredGone": {
			reason: "410 as an ERROR event.", relists: 1, fewest: 1,
			resumed: errorOnce(wireStatus(410, "Expired", "")),
		},
		"GoneReason": {
			reason: "Some servers use the reason Gone.", relists: 1, fewest: 1,
			resumed: errorOnce(wireStatus(410, "Gone", "")),
		},
		"ExpiredAlways": {
			reason: "A server that answers 410 after each list.", relists: 3, fewest: 2, status: "Expired",
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, resume, refusing(410, "Expired"))
			},
			flags: []string{"--no-watch-list"},
		},
		"TooLarge": {
			reason: "504 with its cause: a consistent list.", relists: 1, fewest: 1,
			resumed: errorOnce(wireStatus(504, "Timeout",
				`,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}`)),
		},
		"Busy": {
			reason: "429 waits for Retry-After and keeps the version.", status: "TooManyRequests",
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(1, resume, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Retry-After", "1")
					refuse(w, 429, "TooManyRequests")
				})
			},
		},
		"BusyEvent": {
			reason: "429 as an ERROR event.", status: "TooManyRequests",
			resumed: errorOnce(wireStatus(429, "TooManyRequests", "")),
		},
		"InternalError": {
			reason: "500 resumes.", status: "ServerError",
			resumed: errorOnce(wireStatus(500, "InternalError", "")),
		},
		"StoreReadError": {
			reason: "An unreadable object may be deleted: a list.", relists: 1, fewest: 1,
			resumed: errorOnce(wireStatus(500, "StoreReadError", "")),
		},
		"InternalErrors": {
			reason: "500 again and again: a list.", relists: 1, fewest: 1, status: "ServerError",
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(4, resume, body(frame("ERROR", wireStatus(500, "InternalError", ""))))
			},
		},
		"EndsTwice": {
			reason:  "An end at once, twice, resumes.",
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool { return first(2, resume, body("")) },
		},
		"EndsThrice": {
			reason: "The third time the version counts as expired.", relists: 1, fewest: 1,
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool { return first(3, resume, body("")) },
		},
		"BadGateway": {
			reason: "A proxy's 502 resumes.", status: "ServerError",
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, resume, func(w http.ResponseWriter, _ *http.Request) {
					http.Error(w, "<html>bad gateway</html>", 502)
				})
			},
		},
		"Unauthorized": {
			reason: "401 from a proxy resumes.", status: "Unauthorized",
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, resume, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 401) })
			},
		},
		"Forbidden": {
			reason: "403 resumes.", status: "Forbidden",
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(3, resume, refusing(403, "Forbidden"))
			},
		},
		"Removed": {
			reason: "404 while watching: no later watch reports objects deleted with the resource.", status: "NotFound",
			relists: 1, fewest: 1,
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(1, resume, refusing(404, "NotFound"))
			},
		},
		"BadRequest": {
			reason: "A version that the server refuses: a list.", status: "ServerError", relists: 1, fewest: 1,
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(1, resume, refusing(400, "BadRequest"))
			},
		},
		"Html": {
			reason: "A page of a login with status 200.", status: "ProtocolError",
			resumed: func(*wire) func(http.ResponseWriter, *wireRequest) bool {
				return first(2, resume, body("<html>log in</html>"))
			},
		},
		"LastFrameWithoutNewline": {
			reason:  "A complete last frame counts, a cut one is fetched again.",
			resumed: lastFrame,
		},
		"ByteByByte": {reason: "Frames arrive in any fragmentation.", resumed: dribble},
		"Replayed": {
			reason: "Known versions are suppressed.",
			resumed: func(s *wire) func(http.ResponseWriter, *wireRequest) bool {
				return func(w http.ResponseWriter, r *wireRequest) bool {
					if resume(r) {
						s.follow(w, r, "", 0, time.Minute) // the complete history again
					}
					return resume(r)
				}
			},
		},
		"StringsForNumbers": {
			reason: "ERROR events without a code are classified by their reason.", relists: 1, fewest: 1,
			resumed: errorOnce(
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired",` +
					`"message":"too old resource version: 1 (2)"}`,
			),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWire(t)
			for _, key := range []string{"a/one", "a/two", "b/three"} {
				s.put(key, "first")
			}
			var resumed func(http.ResponseWriter, *wireRequest) bool
			if tc.resumed != nil {
				resumed = tc.resumed(s)
			}
			var away, watches atomic.Bool
			drop := make(chan struct{})
			s.take = func(w http.ResponseWriter, r *wireRequest) bool {
				switch {
				case r.watch() && !away.Load() && watches.CompareAndSwap(false, true):
					_ = s.first(w, r)
					<-drop
					cutOff(w)
					return true
				case away.Load():
					cutOff(w)
					return true
				}
				return resumed != nil && resumed(w, r)
			}
			p := startProgram(t, s.url, tc.flags...)
			p.synced()
			away.Store(true)
			close(drop)
			p.status("Disconnected")
			s.put("a/one", "sécond ☃ \U0001f600")
			s.remove("a/two")
			s.put("a/two", "again")
			s.remove("b/three")
			s.put("c/four", "first")
			if tc.compact {
				s.compact()
			}
			away.Store(false)
			p.agrees(s)
			s.put("c/five", "first")
			p.agrees(s)
			if got := p.state["a/one"].value(); got != "sécond ☃ \U0001f600" {
				t.Errorf("value %q", got)
			}
			p.watches()
			if n := s.relists(); n > tc.relists || n < tc.fewest {
				t.Errorf("%s\n%d lists after the first; want %d to %d", tc.reason, n, tc.fewest, tc.relists)
			}
			if tc.status != "" {
				if _, had := p.degraded(tc.status); !had {
					t.Errorf("%s\nno STATUS %s in %v", tc.reason, tc.status, p.all)
				}
			}
			p.finish()
			for _, l := range p.all {
				if l.kind == "DELETED" && string(l.members["inferred"]) != fmt.Sprint(tc.fewest > 0) &&
					l.key == "b/three" {
					t.Errorf("%s\ninferred only by a list: %v", tc.reason, l)
				}
			}
		})
	}
}

// first sends the content, or nothing after a list, and returns.
func (s *wire) first(w http.ResponseWriter, r *wireRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.initial() {
		for _, o := range s.list("") {
			_, _ = fmt.Fprint(w, frame("ADDED", o.raw))
		}
		_, _ = fmt.Fprint(w, bookmark(s.version, true))
	}
	return http.NewResponseController(w).Flush()
}

func errorOnce(status string) func(*wire) func(http.ResponseWriter, *wireRequest) bool {
	return func(*wire) func(http.ResponseWriter, *wireRequest) bool {
		return first(1, (*wireRequest).resume, body(frame("ERROR", status)))
	}
}

// lastFrame sends one frame in each answer without its line end, and every second time only a part of it.
func lastFrame(s *wire) func(http.ResponseWriter, *wireRequest) bool {
	var n atomic.Int32
	return func(w http.ResponseWriter, r *wireRequest) bool {
		if !r.resume() {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.history {
			if fmt.Sprint(c.version) > r.query.Get("resourceVersion") { // versions have the same length
				text := strings.TrimSpace(frame(c.kind, c.raw))
				if n.Add(1)%2 == 1 {
					text = text[:len(text)*2/3]
				}
				_, _ = fmt.Fprint(w, text)
				return true
			}
		}
		return false
	}
}

// dribble sends all changes byte by byte, and so splits characters, too.
func dribble(s *wire) func(http.ResponseWriter, *wireRequest) bool {
	return func(w http.ResponseWriter, r *wireRequest) bool {
		if !r.resume() {
			return false
		}
		var text strings.Builder
		s.mu.Lock()
		for _, c := range s.history {
			if fmt.Sprint(c.version) > r.query.Get("resourceVersion") {
				text.WriteString(frame(c.kind, c.raw))
			}
		}
		from := s.version
		s.mu.Unlock()
		for i := range text.Len() {
			_, _ = w.Write([]byte{text.String()[i]})
			w.(http.Flusher).Flush()
		}
		s.follow(w, r, "", from, time.Minute)
		return true
	}
}

// TestBlackboxTimeout lets the server end every watch at the requested time, which is no failure.
func TestBlackboxTimeout(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	p := startProgram(t, s.url, "--max-watch", "3s")
	p.synced()
	p.until("watched six times", func() bool { return s.count((*wireRequest).watch) >= 6 })
	s.put("a/one", "second")
	p.agrees(s)
	p.finish()
	if n := s.relists(); n != 0 {
		t.Errorf("%d lists because watches ended in time", n)
	}
	for _, l := range p.all {
		if l.kind == "STATUS" && l.text("phase") == "Degraded" {
			t.Errorf("a problem is reported: %v", l)
		}
	}
}

// TestBlackboxMaxWatch runs a server that ignores timeoutSeconds.
func TestBlackboxMaxWatch(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		r.query.Set("timeoutSeconds", "3600")
		return false
	}
	p := startProgram(t, s.url, "--max-watch", "200ms")
	p.synced()
	p.until("watched five times", func() bool { return s.count((*wireRequest).watch) >= 5 })
	s.put("a/one", "second")
	p.agrees(s)
	p.finish()
	if n := s.relists(); n != 0 {
		t.Errorf("%d lists", n)
	}
}

// TestBlackboxBookmark resumes at the version of a bookmark.
func TestBlackboxBookmark(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		if r.initial() {
			_ = s.first(w, r)
			_, _ = fmt.Fprint(w, bookmark(s.version+100, false))
			return true
		}
		return false
	}
	p := startProgram(t, s.url)
	p.synced()
	p.until("resumed", func() bool { return s.count((*wireRequest).resume) > 0 })
	p.finish()
	if got := s.requests[1].query.Get("resourceVersion"); got != fmt.Sprint(s.version+100) {
		t.Errorf("resumed at %s, want the bookmark's version", got)
	}
}
