package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// wire is an API server for config maps, written only from the description of the protocol. So it reveals mistakes that
// the client shares with the server of fairleadtest. It serves its history, and a test may take over requests.
type wire struct {
	url  string
	take func(w http.ResponseWriter, r *wireRequest) bool // reports whether it has answered; set before the first request

	mu        sync.Mutex
	version   int
	compacted int // the history up to this version is compacted
	objects   map[string]wireObject
	history   []wireChange
	moved     chan struct{} // closed at the next change
	snapshots map[string][]wireObject
	requests  []wireRequest
	ended     chan struct{}
}

type wireObject struct {
	key, uid string
	version  int
	raw      string
}

type wireChange struct {
	wireObject
	kind string
}

// wireRequest is a parsed request.
type wireRequest struct {
	n     int // number of earlier requests
	at    time.Time
	path  string
	query url.Values
	token string
	http  *http.Request
}

func (r *wireRequest) watch() bool   { return r.query.Get("watch") == "true" }
func (r *wireRequest) initial() bool { return r.query.Get("sendInitialEvents") == "true" }
func (r *wireRequest) list() bool    { return !r.watch() }
func (r *wireRequest) probe() bool   { return r.list() && r.query.Get("limit") == "1" }

func newWire(t *testing.T) *wire {
	t.Helper()
	s := &wire{
		version: 1000, objects: map[string]wireObject{}, moved: make(chan struct{}),
		snapshots: map[string][]wireObject{},
		ended:     make(chan struct{}),
	}
	server := httptest.NewServer(s)
	s.url = server.URL
	t.Cleanup(func() {
		close(s.ended)
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// put writes an object; at is its raw form at a version and with a uid.
func (s *wire) putRaw(key string, at func(version, uid string) string) wireObject {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 3
	was, known := s.objects[key]
	o := wireObject{key: key, uid: was.uid, version: s.version}
	kind := "MODIFIED"
	if !known {
		kind, o.uid = "ADDED", fmt.Sprintf("uid-%d", s.version)
	}
	o.raw = at(strconv.Itoa(o.version), o.uid)
	s.objects[key] = o
	s.note(wireChange{o, kind})
	return o
}

func (s *wire) put(key, value string) wireObject {
	return s.putRaw(key, func(version, uid string) string { return wireConfigMap(key, version, uid, value) })
}

func (s *wire) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 3
	o := s.objects[key]
	delete(s.objects, key)
	o.raw = strings.Replace(o.raw, fmt.Sprintf(`"resourceVersion":"%d"`, o.version),
		fmt.Sprintf(`"resourceVersion":"%d"`, s.version), 1)
	o.version = s.version
	s.note(wireChange{o, "DELETED"})
}

func (s *wire) note(c wireChange) {
	s.history = append(s.history, c)
	close(s.moved)
	s.moved = make(chan struct{})
}

// compact forgets all history.
func (s *wire) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
	clear(s.snapshots)
}

func (s *wire) count(is func(*wireRequest) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for i := range s.requests {
		if is(&s.requests[i]) {
			n++
		}
	}
	return n
}

func wireConfigMap(key, version, uid, value string) string {
	namespace, name, _ := strings.Cut(key, "/")
	v, _ := json.Marshal(value) // strings can always be encoded
	return fmt.Sprintf(
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q},`+
			`"data":{"value":%s}}`,
		name, namespace, uid, version, v,
	)
}

func frame(kind, raw string) string { return `{"type":"` + kind + `","object":` + raw + "}\n" }

func bookmark(version any, end bool) string {
	annotation := ""
	if end {
		annotation = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	return frame("BOOKMARK", fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%v"%s}}`,
		version, annotation))
}

func wireStatus(code int, reason, extra string) string {
	return fmt.Sprintf(
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"because of the test",`+
			`"reason":%q,"code":%d%s}`, reason, code, extra,
	)
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, wireStatus(code, reason, ""))
}

func (s *wire) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := wireRequest{
		at: time.Now(), path: r.URL.Path, query: r.URL.Query(), http: r,
		token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
	}
	s.mu.Lock()
	q.n = len(s.requests)
	s.requests = append(s.requests, q)
	take := s.take
	s.mu.Unlock()
	if take != nil && take(w, &q) {
		return
	}
	s.serve(w, &q)
}

// serve answers as an API server does.
func (s *wire) serve(w http.ResponseWriter, q *wireRequest) {
	namespace := ""
	if rest, in := strings.CutPrefix(q.path, "/api/v1/namespaces/"); in {
		namespace, _, _ = strings.Cut(rest, "/")
	}
	if !strings.HasPrefix(q.path, "/api/v1/") || !strings.HasSuffix(q.path, "/configmaps") {
		http.NotFound(w, q.http)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if q.watch() {
		s.serveWatch(w, q, namespace)
		return
	}
	s.serveList(w, q, namespace)
}

// list returns the objects of a namespace in the order of their keys.
func (s *wire) list(namespace string) (all []wireObject) {
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if namespace == "" || strings.HasPrefix(key, namespace+"/") {
			all = append(all, s.objects[key])
		}
	}
	return all
}

func (s *wire) serveList(w http.ResponseWriter, q *wireRequest, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version, token := s.version, q.query.Get("continue")
	var rest []wireObject
	switch {
	case token == "":
		rest = s.list(namespace)
		if n, _ := strconv.Atoi(q.query.Get("resourceVersion")); n > version {
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = fmt.Fprint(w, wireStatus(504, "Timeout",
				`,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}`))
			return
		}
	case q.query.Has("resourceVersion"):
		refuse(w, 400, "BadRequest")
		return
	default:
		var known bool
		if rest, known = s.snapshots[token]; !known {
			refuse(w, 410, "Expired")
			return
		}
		version, _ = strconv.Atoi(token[:strings.IndexByte(token, '.')])
	}
	next, remaining := "", ""
	page := rest
	if limit, _ := strconv.Atoi(q.query.Get("limit")); limit > 0 && limit < len(rest) {
		page = rest[:limit]
		next = fmt.Sprintf("%d.%d", version, len(s.snapshots))
		s.snapshots[next] = rest[limit:]
		remaining = fmt.Sprintf(`,"remainingItemCount":%d`, len(rest)-limit)
	}
	items := make([]string, 0, len(page))
	for _, o := range page {
		items = append(items, o.raw)
	}
	_, _ = fmt.Fprintf(w,
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q%s},"items":[%s]}`,
		version, next, remaining, strings.Join(items, ","))
}

func (s *wire) serveWatch(w http.ResponseWriter, q *wireRequest, namespace string) {
	if q.initial() && q.query.Get("resourceVersionMatch") != "NotOlderThan" {
		refuse(w, 422, "Invalid")
		return
	}
	version := q.query.Get("resourceVersion")
	from, err := strconv.Atoi(version)
	s.mu.Lock()
	if !q.initial() && err == nil && from > 0 && from < s.compacted {
		s.mu.Unlock()
		refuse(w, 410, "Expired")
		return
	}
	if q.initial() || version == "" || version == "0" {
		from = s.version
		for _, o := range s.list(namespace) {
			_, _ = w.Write([]byte(frame("ADDED", o.raw)))
		}
		if q.initial() {
			_, _ = w.Write([]byte(bookmark(s.version, true)))
		}
	}
	s.mu.Unlock()
	seconds, _ := strconv.Atoi(q.query.Get("timeoutSeconds"))
	s.follow(w, q, namespace, from, time.Duration(seconds)*time.Second)
}

// follow sends the changes after a version until the time is over.
func (s *wire) follow(w http.ResponseWriter, q *wireRequest, namespace string, from int, limit time.Duration) {
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		s.mu.Lock()
		for _, c := range s.history {
			if c.version > from && (namespace == "" || strings.HasPrefix(c.key, namespace+"/")) {
				_, _ = w.Write([]byte(frame(c.kind, c.raw)))
			}
		}
		from = s.version
		moved := s.moved
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-moved:
		case <-over.C:
			return
		case <-q.http.Context().Done():
			return
		case <-s.ended:
			return
		}
	}
}

// hold keeps an answer open and silent until the client or the test ends it.
func (s *wire) hold(w http.ResponseWriter, q *wireRequest) {
	w.(http.Flusher).Flush()
	select {
	case <-q.http.Context().Done():
	case <-s.ended:
	}
}
