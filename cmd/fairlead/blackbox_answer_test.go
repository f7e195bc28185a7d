package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// typed returns a handler that answers with a status, a content type and a body.
func typed(code int, contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, text)
	}
}

// tooLarge has the forms in which servers say that they have not reached a version yet.
var tooLarge = map[string]http.HandlerFunc{
	"Cause": typed(504, "application/json",
		wireStatus(504, "Timeout",
			`,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}`)),
	"CauseText": typed(504, "application/json",
		wireStatus(504, "Timeout",
			`,"details":{"causes":[{"message":"Too large resource version"}],"retryAfterSeconds":1}`)),
	"Text": typed(504, "application/json",
		strings.Replace(wireStatus(504, "Timeout", ""), "because of the test",
			"Timeout: Too large resource version: 2000, current: 1999", 1)),
	"TextAndDetails": typed(504, "application/json",
		strings.Replace(wireStatus(504, "Timeout", `,"details":{"retryAfterSeconds":1}`), "because of the test",
			"Too large resource version: 2000, current: 1999", 1)),
	"NoStatus": typed(504, "text/plain", "Too large resource version: 2000"),
	"Event": body(frame("ERROR", strings.Replace(wireStatus(504, "Timeout", ""), "because of the test",
		"Too large resource version: 2000", 1))),
	"StatusOf200": body(strings.Replace(wireStatus(504, "Timeout", ""), "because of the test",
		"Too large resource version: 2000", 1)),
}

// refusedAtVersion has other answers that lists at a version may get forever.
var refusedAtVersion = map[string]http.HandlerFunc{
	"Busy":     refusing(429, "TooManyRequests"),
	"Broken":   refusing(500, "InternalError"),
	"Gateway":  typed(504, "text/html", "<html>gateway timeout</html>"),
	"Bad":      refusing(400, "BadRequest"),
	"Gone":     refusing(410, "Expired"),
	"NoAccess": refusing(403, "Forbidden"),
	"Html":     typed(200, "text/html", "<html>log in</html>"),
	"Cut": body(
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9000"},"items":[{"metadata":{`,
	),
	"Table": body(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9000"},"rows":[]}`),
	"Older": body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"3"},"items":[]}`),
	"Drop":  func(w http.ResponseWriter, _ *http.Request) { cutOff(w) },
}

// TestBlackboxListAtVersion never answers a list at the version seen. After few requests the program makes a consistent
// list.
func TestBlackboxListAtVersion(t *testing.T) {
	t.Parallel()
	atVersion := func(r *wireRequest) bool { return !r.resume() && r.query.Get("resourceVersion") != "" }
	for _, answers := range []map[string]http.HandlerFunc{tooLarge, refusedAtVersion} {
		for name, answer := range answers {
			for _, flag := range []string{"--no-watch-list", "--no-watch-list=false"} {
				t.Run(name+flag, func(t *testing.T) {
					t.Parallel()
					s := newWire(t)
					s.put("a/one", "first")
					s.put("a/two", "first")
					expire := make(chan struct{})
					var expired atomic.Bool
					s.take = func(w http.ResponseWriter, r *wireRequest) bool {
						switch {
						case atVersion(r):
							answer(w, r.http)
						case r.watch() && !expired.Load():
							_ = s.first(w, r)
							<-expire
							expired.Store(true)
							_, _ = fmt.Fprint(w, frame("ERROR", wireStatus(410, "Expired", "")))
						default:
							return false
						}
						return true
					}
					p := startProgram(t, s.url, flag)
					p.synced()
					s.remove("a/one")
					s.put("a/three", "first")
					close(expire)
					p.agrees(s)
					p.watches()
					p.finish()
					if n := s.count(atVersion); n < 1 || n > 4 {
						t.Errorf("%d lists at the version seen", n)
					}
				})
			}
		}
	}
}

// TestBlackboxOddAnswers gives invalid answers to each kind of request, and expects the program to report them.
func TestBlackboxOddAnswers(t *testing.T) {
	t.Parallel()
	page := "<!DOCTYPE html><html><body>Please log in</body></html>"
	list := func(apiVersion, kind, metadata string) string {
		return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[%s]}`, kind, apiVersion, metadata,
			wireConfigMap("x/ghost", "7", "u", ""))
	}
	version := `{"resourceVersion":"9000"}`
	answers := map[string]struct {
		answer http.HandlerFunc
		reason string
	}{
		"Html":             {typed(200, "text/html", page), "ProtocolError"},
		"HtmlSaysJSON":     {typed(200, "application/json", page), "ProtocolError"},
		"HtmlSaysProtobuf": {typed(200, "application/vnd.kubernetes.protobuf", page), "ProtocolError"},
		"HtmlWithSpace":    {typed(200, "text/html", "\ufeff\r\n\r\n"+page), "ProtocolError"},
		"Html203":          {typed(203, "text/html", page), "ProtocolError"},
		"Html401":          {typed(401, "text/html", page), "Unauthorized"},
		"Html403":          {typed(403, "text/html", page), "Forbidden"},
		"Html404":          {typed(404, "text/html", page), "NotFound"},
		"Html418":          {typed(418, "text/html", page), "ServerError"},
		"Html429":          {typed(429, "text/html", page), "TooManyRequests"},
		"Html500":          {typed(500, "text/html", page), "ServerError"},
		"Html503":          {typed(503, "text/html", page), "ServerError"},
		"NoContent":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "ProtocolError"},
		"Login": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/login", http.StatusFound)
		}, "NotFound"},
		"OtherJSON": {body(`{"error":"login_required"}`), "ProtocolError"},
		"Array":     {body(`[]`), "ProtocolError"},
		"Null":      {body(`null`), "ProtocolError"},
		"Success":   {body(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`), "ProtocolError"},
		"Review": {
			body(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{}}`),
			"ProtocolError",
		},
		"Table": {
			body(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":` + version + `,"rows":[]}`),
			"ProtocolError",
		},
		"OtherGroup": {body(list("apps/v1", "ConfigMapList", version)), "ProtocolError"},
		"GzipGarbage": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = fmt.Fprint(w, page)
		}, "ProtocolError"},
		"GzipCorrupt": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00" +
				"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
		}, "ProtocolError"},
		"Brotli": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = w.Write([]byte("\x0b\x02\x80\x7b\x7d\x03"))
		}, "ProtocolError"},
		"Forbidden200": {
			body(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"not you"}`),
			"Forbidden",
		},
	}
	ofLists := map[string]http.HandlerFunc{
		"Empty":       body(""),
		"Secrets":     body(list("v1", "SecretList", version)),
		"NoMetadata":  body(list("v1", "ConfigMapList", "null")),
		"BadMetadata": body(list("v1", "ConfigMapList", `[]`)),
		"BadVersion":  body(list("v1", "ConfigMapList", `{"resourceVersion":9000}`)),
		"Kindless":    body(list("", "", version)),
		"Single":      body(wireConfigMap("x/ghost", "7", "u", "")),
		"ItemsObject": body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":` + version + `,"items":{}}`),
		"Tail":        body(list("v1", "ConfigMapList", version) + page),
		"Circles":     body(list("v1", "ConfigMapList", `{"resourceVersion":"9000","continue":"t"}`)),
		"Cut":         body(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":` + version + `,"items":[`),
	}
	places := map[string]struct {
		is    func(*wireRequest) bool
		flags []string
		lists bool
	}{
		"Initial": {(*wireRequest).initial, nil, false},
		"List": {
			func(r *wireRequest) bool { return r.list() && !r.probe() && !r.query.Has("continue") },
			[]string{"--no-watch-list"},
			true,
		},
		"Page": {
			func(r *wireRequest) bool { return r.query.Has("continue") },
			[]string{"--no-watch-list", "--page-size", "2"},
			true,
		},
		"Resume": {(*wireRequest).resume, []string{"--no-watch-list"}, false},
		"Probe":  {(*wireRequest).probe, []string{"--silence-budget", "100ms"}, true},
	}
	for where, place := range places {
		play := func(name string, answer http.HandlerFunc, reason string) {
			t.Run(where+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newWire(t)
				for _, key := range []string{"a/one", "a/two", "b/three"} {
					s.put(key, "first")
				}
				s.take = first(2, place.is, answer)
				p := startProgram(t, s.url, place.flags...)
				// Initial events are optional, so these answers are no error. The list that follows reports the problem.
				if where != "Initial" || name != "Html403" && name != "Html418" && name != "Forbidden200" {
					p.awaitProblem(reason)
				}
				if !p.printed("SYNCED") {
					p.synced()
				}
				s.put("a/one", "second")
				s.remove("b/three")
				p.agrees(s)
				p.watches()
				p.finish()
				if l := p.state["x/ghost"]; l.kind != "" || p.printed("EPOCH") {
					t.Errorf("believed: %v", l)
				}
			})
		}
		for name, a := range answers {
			play(name, a.answer, a.reason)
		}
		if place.lists {
			for name, answer := range ofLists {
				if name == "Circles" && where != "Page" || name == "Tail" && where == "Probe" ||
					name == "Secrets" && where == "List" {
					// Only a later page repeats its token. A probe reads no tail. The first list may have any kind.
					continue
				}
				play(name, answer, "ProtocolError")
			}
		}
	}
}
