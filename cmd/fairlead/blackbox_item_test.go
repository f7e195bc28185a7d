package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// oddItems has invalid values in the place of an object of a list or a watch.
var oddItems = map[string]string{
	"Null": `null`, "Number": `17`, "Text": `"text"`, "Array": `[{"metadata":{"name":"x"}}]`, "True": `true`,
	"Empty": `{}`, "NullMetadata": `{"kind":"ConfigMap","metadata":null}`, "EmptyMetadata": `{"metadata":{}}`,
	"ArrayMetadata": `{"metadata":[]}`,
	"NullName":      `{"metadata":{"name":null,"namespace":"a"}}`, "NoName": `{"metadata":{"namespace":"a","uid":"u"}}`,
	"Status": `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`,
	"Table":  `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"rows":[]}`,
	"OtherKind": `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"odd","namespace":"a","uid":"u",` +
		`"resourceVersion":"7"}}`,
	"OtherGroup": `{"kind":"ConfigMap","apiVersion":"apps/v1","metadata":{"name":"odd","namespace":"a","uid":"u",` +
		`"resourceVersion":"7"}}`,
}

// TestBlackboxOddItems puts one invalid item among the objects, at each place of a list, of initial events and of a
// watch. All other objects arrive, the condition reports the invalid one, and requests are not repeated endlessly.
func TestBlackboxOddItems(t *testing.T) {
	t.Parallel()
	among := func(s *wire, item string, at int) []string {
		var items []string
		for _, o := range s.list("") {
			items = append(items, o.raw)
		}
		return slices.Insert(items, at*len(items)/2, item)
	}
	ways := map[string]func(s *wire, item string, at int) func(http.ResponseWriter, *wireRequest) bool{
		"List": func(s *wire, item string, at int) func(http.ResponseWriter, *wireRequest) bool {
			return func(w http.ResponseWriter, r *wireRequest) bool {
				if !r.list() || r.probe() {
					return false
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				body(fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},`+
					`"items":[%s]}`,
					s.version, strings.Join(among(s, item, at), " , ")))(w, r.http)
				return true
			}
		},
		"ListKindLast": func(s *wire, item string, at int) func(http.ResponseWriter, *wireRequest) bool {
			return func(w http.ResponseWriter, r *wireRequest) bool {
				if !r.list() || r.probe() {
					return false
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				body(fmt.Sprintf(`{"items":[%s],"metadata":{"resourceVersion":"%d"},"apiVersion":"v1",`+
					`"kind":"ConfigMapList"}`,
					strings.Join(among(s, item, at), ","), s.version))(w, r.http)
				return true
			}
		},
		"Initial": func(s *wire, item string, at int) func(http.ResponseWriter, *wireRequest) bool {
			return func(w http.ResponseWriter, r *wireRequest) bool {
				if !r.initial() {
					return false
				}
				s.mu.Lock()
				for _, raw := range among(s, item, at) {
					_, _ = fmt.Fprint(w, frame("ADDED", raw))
				}
				version := s.version
				_, _ = fmt.Fprint(w, bookmark(version, true))
				s.mu.Unlock()
				s.follow(w, r, "", version, 1<<40)
				return true
			}
		},
		"Watch": func(s *wire, item string, at int) func(http.ResponseWriter, *wireRequest) bool {
			var n atomic.Int32
			return func(w http.ResponseWriter, r *wireRequest) bool {
				if r.resume() && n.Add(1) <= 9 { // it stays in the history for a while
					_, _ = fmt.Fprint(w, frame([]string{"ADDED", "MODIFIED", "DELETED"}[at], item))
				}
				return false
			}
		},
	}
	for way, take := range ways {
		for name, item := range oddItems {
			for at := range 3 {
				t.Run(fmt.Sprintf("%s/%s/%d", way, name, at), func(t *testing.T) {
					t.Parallel()
					s := newWire(t)
					for _, key := range []string{"a/one", "a/two", "b/three", "b/four"} {
						s.put(key, "first")
					}
					s.take = take(s, item, at)
					var flags []string
					if way != "Initial" {
						flags = []string{"--no-watch-list"}
					}
					p := startProgram(t, s.url, flags...)
					p.synced()
					p.agrees(s)
					s.put("a/one", "second")
					s.remove("a/two")
					p.agrees(s)
					p.watches()
					p.finish()
					reported := func(l printed) bool {
						if strings.HasPrefix(way, "List") {
							return l.reason == "Watching" && strings.Contains(l.text("message"), "could not be read")
						}
						return l.kind == "QUARANTINED" || l.reason == "ProtocolError" && l.text("message") != "" ||
							l.reason == "ServerError"
					}
					if !slices.ContainsFunc(p.all, reported) {
						t.Errorf("the condition does not report it: %v", p.all)
					}
					if n := len(s.requests); n > 16 {
						t.Errorf("%d requests", n)
					}
				})
			}
		}
	}
}

// TestBlackboxTwins repeats a key in a list, with one uid or two, in both orders, within and across pages. Only the
// newest state is ever shown.
func TestBlackboxTwins(t *testing.T) {
	t.Parallel()
	older, newer := wireConfigMap("a/twin", "900", "uid-1", "older"), wireConfigMap("a/twin", "950", "uid-1", "newer")
	other := wireConfigMap("a/twin", "950", "uid-2", "newer")
	rest := wireConfigMap("b/rest", "800", "uid-3", "rest")
	ends := func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, bookmark(1000, true)) }
	for name, items := range map[string][]string{
		"OlderFirst": {older, rest, newer}, "NewerFirst": {newer, rest, older},
		"OlderFirstOtherUID": {older, rest, other}, "NewerFirstOtherUID": {other, rest, older},
		"Sandwich": {older, newer, older}, "Thrice": {newer, older, older},
	} {
		for _, way := range []string{"Page", "Pages", "Initial"} {
			t.Run(way+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newWire(t)
				var expire expiry
				s.take = func(w http.ResponseWriter, r *wireRequest) bool {
					switch {
					case expire.refuses(w, r):
						return true
					case r.initial() && way == "Initial":
						for _, raw := range items {
							_, _ = fmt.Fprint(w, frame("ADDED", raw))
						}
						ends(w)
						s.follow(w, r, "", 1000, 300e6)
						return true
					case r.probe() || !r.list():
						return false
					}
					page, next := strings.Join(items, ","), ""
					if way == "Pages" {
						var n int
						_, _ = fmt.Sscan(r.query.Get("continue"), &n) // n stays 0 without it
						page = items[n]
						if n++; n < len(items) {
							next = fmt.Sprint(n)
						}
					}
					body(
						fmt.Sprintf(
							`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1000",`+
								`"continue":%q},"items":[%s]}`,
							next, page,
						),
					)(w, r.http)
					return true
				}
				flags := []string{"--page-size", "10", "--max-watch", "300ms"}
				if way != "Initial" {
					flags = append(flags, "--no-watch-list")
				}
				p := startProgram(t, s.url, flags...)
				p.synced()
				check := func() {
					t.Helper()
					if got := p.state["a/twin"].value(); got != "newer" {
						t.Errorf("it is the %s object: %v", got, p.state["a/twin"])
					}
				}
				check()
				lists := s.relists()
				expire.Store(true) // and list again over the known objects
				p.until("listed again", func() bool { return s.relists() > lists })
				s.put("z/marker", "first")
				p.event("ADDED", "z/marker")
				check()
				p.finish()
				if p.printed("MODIFIED") || p.countOf("DELETED") > 0 || p.countOf("ADDED") > 3 {
					t.Errorf("another state than the newest one was shown: %v", p.all)
				}
			})
		}
	}
}
