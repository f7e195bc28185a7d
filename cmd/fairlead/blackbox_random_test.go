package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/seed"
)

// oddAnswer is the behaviour of a faulty server for one request. A loud one must be reported.
type oddAnswer struct {
	loud bool
	play func(s *wire, w http.ResponseWriter, r *wireRequest, rnd *rand.Rand)
}

func plainly(h http.HandlerFunc) func(*wire, http.ResponseWriter, *wireRequest, *rand.Rand) {
	return func(_ *wire, w http.ResponseWriter, r *wireRequest, _ *rand.Rand) { h(w, r.http) }
}

// oddAlways has odd answers to all requests.
func oddAlways() map[string]oddAnswer {
	all := map[string]oddAnswer{
		// net/http repeats the request on its own if it has used the connection before.
		"drop": {false, func(_ *wire, w http.ResponseWriter, _ *wireRequest, _ *rand.Rand) { cutOff(w) }},
		"cut": {true, func(_ *wire, w http.ResponseWriter, _ *wireRequest, _ *rand.Rand) {
			w.Header().Set("Content-Length", "100")
			_, _ = fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			cutOff(w)
		}},
		"silent": {true, func(s *wire, w http.ResponseWriter, r *wireRequest, _ *rand.Rand) { s.without(w, r.http) }},
		"late": {false, func(s *wire, w http.ResponseWriter, r *wireRequest, rnd *rand.Rand) {
			pause(s, time.Duration(rnd.IntN(300))*time.Millisecond)
			s.serve(w, r)
		}},
		"noise": {true, func(_ *wire, w http.ResponseWriter, _ *wireRequest, rnd *rand.Rand) {
			b := make([]byte, 1+rnd.IntN(2000))
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			b[0] |= 0x80 // no white space
			_, _ = w.Write(b)
		}},
		"brackets": {true, plainly(body(strings.Repeat(`{"a":[`, 30000)))},
		"gzip": {true, func(_ *wire, w http.ResponseWriter, _ *wireRequest, _ *rand.Rand) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = fmt.Fprint(w, "no gzip")
		}},
		"redirect": {false, func(_ *wire, w http.ResponseWriter, r *wireRequest, _ *rand.Rand) {
			http.Redirect(w, r.http, r.http.URL.String(), http.StatusFound)
		}},
	}
	for _, code := range []int{201, 204, 400, 401, 403, 404, 405, 406, 409, 410, 418, 422, 429, 500, 502, 503, 504} {
		all[fmt.Sprint(code, " html")] = oddAnswer{true, plainly(typed(code, "text/html", "<html>no</html>"))}
		all[fmt.Sprint(code, " status")] = oddAnswer{
			true,
			plainly(typed(code, "application/json", wireStatus(code, "", ""))),
		}
	}
	for name, h := range tooLarge {
		all["too large "+name] = oddAnswer{true, plainly(h)}
	}
	for _, text := range []string{
		"<html>log in</html>", "null", "[]", "17", `""`, "{", `{}`, `{"items":[]}`,
		`{"kind":"Status","status":"Success"}`,
	} {
		all[text] = oddAnswer{true, plainly(body(text))}
	}
	return all
}

// oddLists has odd answers to a list: valid ones in an odd form, and invalid ones that are recognizable.
func oddLists() map[string]oddAnswer {
	lists := oddAlways()
	// with answers with the server's content after a change.
	with := func(change func(items []wireObject, version int, rnd *rand.Rand) (raw []string, at int)) func(
		*wire, http.ResponseWriter, *wireRequest, *rand.Rand,
	) {
		return func(s *wire, w http.ResponseWriter, r *wireRequest, rnd *rand.Rand) {
			s.mu.Lock()
			raw, version := change(s.list(""), s.version, rnd)
			s.mu.Unlock()
			body(fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},`+
				`"items":[%s]}`,
				version, strings.Join(raw, ",")))(w, r.http)
		}
	}
	raw := func(items []wireObject) (all []string) {
		for _, o := range items {
			all = append(all, o.raw)
		}
		return all
	}
	lists["odd item"] = oddAnswer{true, with(func(items []wireObject, version int, rnd *rand.Rand) ([]string, int) {
		odd := oddItems[slices.Sorted(maps.Keys(oddItems))[rnd.IntN(len(oddItems))]]
		return slices.Insert(raw(items), rnd.IntN(len(items)+1), odd), version
	})}
	lists["twins"] = oddAnswer{false, with(func(items []wireObject, version int, rnd *rand.Rand) ([]string, int) {
		all := raw(items)
		for range 3 {
			if len(items) > 0 {
				o := items[rnd.IntN(len(items))]
				all = slices.Insert(all, rnd.IntN(len(all)+1),
					wireConfigMap(o.key, strconv.Itoa(o.version-1), "uid-of-old", "old"))
			}
		}
		return all, version
	})}
	lists["lagging"] = oddAnswer{
		false, with(func(items []wireObject, version int, _ *rand.Rand) ([]string, int) { return raw(items), 900 }),
	}
	lists["circle"] = oddAnswer{true, plainly(
		body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"t"},"items":[]}`),
	)}
	lists["no version"] = oddAnswer{
		true, plainly(body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}`)),
	}
	lists["secrets"] = oddAnswer{
		true, plainly(body(`{"kind":"SecretList","apiVersion":"v2","metadata":{"resourceVersion":"5"},"items":[]}`)),
	}
	return lists
}

// oddWatches has odd answers to a watch. Each may start with valid events.
func oddWatches() map[string]oddAnswer {
	watches := map[string]oddAnswer{}
	for name, odd := range oddAlways() {
		watches[name] = odd
	}
	after := func(text string, hold bool) func(*wire, http.ResponseWriter, *wireRequest, *rand.Rand) {
		return func(s *wire, w http.ResponseWriter, r *wireRequest, rnd *rand.Rand) {
			if rnd.IntN(2) == 0 {
				s.begin(w, r)
			}
			_, _ = fmt.Fprint(w, text)
			if hold {
				s.hold(w, r)
			}
		}
	}
	for _, hold := range []bool{true, false} {
		for name, item := range oddItems {
			watches[fmt.Sprint("event ", name, hold)] = oddAnswer{false, after(frame("MODIFIED", item), hold)}
			watches[fmt.Sprint("bookmark ", name, hold)] = oddAnswer{false, after(frame("BOOKMARK", item), hold)}
			watches[fmt.Sprint("error ", name, hold)] = oddAnswer{false, after(frame("ERROR", item), hold)}
		}
		for _, text := range []string{
			"null\n", "[]\n", "{}\n", "\x00\n", `{"type":"ADDED"}` + "\n", `{"type":17,"object":{}}` + "\n",
			`{"type":"ADDED","object":{"metadata":{` + "\n",
			frame("RENAMED", wireConfigMap("a/1", "5", "u", "")), `{"type":"MODIFIED","object":{"kind":"ConfigMap"`,
			frame("ADDED", `{"metadata":nope}`),
			frame("ERROR", wireStatus(410, "Expired", "")), frame("ERROR", wireStatus(500, "StoreReadError", "")),
			frame("ERROR", wireStatus(500, "InternalError", "")),
			bookmark("0", false), bookmark("", true), bookmark(7, false), bookmark(90000000, false), "",
		} {
			watches[fmt.Sprint(text, hold)] = oddAnswer{false, after(text, hold)}
		}
	}
	watches["history again"] = oddAnswer{false, func(s *wire, w http.ResponseWriter, r *wireRequest, _ *rand.Rand) {
		if r.initial() {
			s.serve(w, r)
			return
		}
		s.follow(w, r, "", 0, 200*time.Millisecond)
	}}
	watches["endless"] = oddAnswer{false, func(s *wire, w http.ResponseWriter, r *wireRequest, _ *rand.Rand) {
		for r.http.Context().Err() == nil {
			_, _ = fmt.Fprint(w, strings.Repeat(bookmark(7, false), 20))
			w.(http.Flusher).Flush()
			pause(s, 5*time.Millisecond)
		}
	}}
	return watches
}

// begin sends the first part of a watch, and leaves it open.
func (s *wire) begin(w http.ResponseWriter, r *wireRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.initial() {
		for _, o := range s.list("") {
			_, _ = fmt.Fprint(w, frame("ADDED", o.raw))
		}
		return
	}
	from, _ := strconv.Atoi(r.query.Get("resourceVersion")) // a missing version is 0
	for _, c := range s.history {
		if c.version > from {
			_, _ = fmt.Fprint(w, frame(c.kind, c.raw))
		}
	}
}

// TestBlackboxRandom runs a server that answers at random for a while, and then correctly. Afterwards the program has
// the state of the server and reports that it watches. It has reported the failures and sent few requests.
func TestBlackboxRandom(t *testing.T) {
	t.Parallel()
	seed.Play(t, 10, func(t *testing.T, n uint64) {
		t.Parallel()
		mad(t, n)
	})
}

func mad(t *testing.T, n uint64) {
	rnd := seed.Rand(n, "world")
	s := newWire(t)
	key := func() string { return fmt.Sprintf("%c/%d", 'a'+rnd.IntN(2), rnd.IntN(6)) }
	for range rnd.IntN(6) {
		s.put(key(), "first")
	}
	kinds := []map[string]oddAnswer{oddLists(), oddWatches()}
	names := [][]string{slices.Sorted(maps.Keys(kinds[0])), slices.Sorted(maps.Keys(kinds[1]))}
	share := rnd.Float64() // of odd answers
	var sane, loud atomic.Bool
	var mu sync.Mutex
	var played []string
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		if sane.Load() {
			return false
		}
		choice := seed.Rand(n, "request", r.n)
		if choice.Float64() > share {
			return false
		}
		kind := 0
		if r.watch() {
			kind = 1
		}
		name := names[kind][choice.IntN(len(names[kind]))]
		mu.Lock()
		played = append(played, fmt.Sprintf("%d %s %s: %s", r.n, r.http.Method, r.query.Encode(), name))
		mu.Unlock()
		odd := kinds[kind][name]
		odd.play(s, w, r, choice)
		if odd.loud && !r.initial() && !sane.Load() && r.http.Context().Err() == nil {
			loud.Store(true) // initial events are optional, so a refusal of them is no error
		}
		return true
	}
	flags := []string{
		"--backoff-base", "40ms", "--backoff-cap", "150ms", "--silence-budget", "250ms", "--list-progress-timeout",
		"250ms",
		"--page-size", fmt.Sprint(1 + rnd.IntN(5)), "--max-watch", fmt.Sprint(1+rnd.IntN(3), "s"),
	}
	if rnd.IntN(2) == 0 {
		flags = append(flags, "--no-watch-list")
	}
	begun := time.Now()
	p := startProgram(t, s.url, flags...)
	for range 20 {
		pause(s, time.Duration(rnd.IntN(150))*time.Millisecond)
		switch rnd.IntN(8) {
		case 0:
			s.compact()
		case 1, 2:
			s.mu.Lock()
			keys := slices.Sorted(maps.Keys(s.objects))
			s.mu.Unlock()
			if len(keys) > 0 {
				s.remove(keys[rnd.IntN(len(keys))])
			}
		default:
			s.put(key(), fmt.Sprint(rnd.Int()))
		}
	}
	requests, took := s.count(func(*wireRequest) bool { return true }), time.Since(begun)
	sane.Store(true)
	s.put("z/marker", "last")
	t.Cleanup(func() {
		if t.Failed() {
			mu.Lock()
			defer mu.Unlock()
			t.Logf("flags %q, played %q", flags, played)
		}
	})
	p.agrees(s)
	p.watches()
	p.finish()
	if most := 60 + int(took/(12*time.Millisecond)); requests > most {
		t.Errorf("%d requests in %v", requests, took)
	}
	reported := func(l printed) bool {
		return l.kind == "QUARANTINED" || l.kind == "STATUS" && l.reason != "Watching" && l.reason != "Listing" &&
			l.text("message") != ""
	}
	if loud.Load() && !slices.ContainsFunc(p.all, reported) {
		t.Errorf("no problem is reported: %v", p.all)
	}
}
