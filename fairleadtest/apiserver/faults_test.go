package apiserver_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestAnswersThatAreRefused takes the faults that replace an answer.
func TestAnswersThatAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault  apiserver.Fault
		code   int
		kind   string
		reason metav1.StatusReason
		header map[string]string
		body   string
	}{
		"410 Expired": {apiserver.Answer(apiserver.Expired()), 410, "Status", metav1.StatusReasonExpired, nil, ""},
		"410 Gone":    {apiserver.Answer(apiserver.Gone()), 410, "Status", metav1.StatusReasonGone, nil, ""},
		"429": {
			apiserver.Answer(apiserver.TooManyRequests(7)), 429, "Status", metav1.StatusReasonTooManyRequests,
			map[string]string{"Retry-After": "7"},
			"",
		},
		"504 too large": {
			apiserver.Answer(apiserver.VersionTooLarge(3)), 504, "Status", metav1.StatusReasonTimeout,
			map[string]string{"Retry-After": "3"},
			"ResourceVersionTooLarge",
		},
		"500 store": {
			apiserver.Answer(apiserver.StoreReadError()), 500, "Status", metav1.StatusReasonStoreReadError,
			nil, "",
		},
		"500": {
			apiserver.Answer(apiserver.Failure(500)), 500, "Status", metav1.StatusReasonInternalError, nil,
			"",
		},
		"502": {
			apiserver.Text(502, "bad gateway"), 502, "", "",
			map[string]string{"Content-Type": "text/plain; charset=utf-8"},
			"bad gateway",
		},
		"503": {
			apiserver.Answer(apiserver.Failure(503)), 503, "Status", metav1.StatusReasonServiceUnavailable,
			nil, "",
		},
		"401": {apiserver.Answer(apiserver.Failure(401)), 401, "Status", metav1.StatusReasonUnauthorized, nil, ""},
		"403 of a proxy": {
			apiserver.HTML(403), 403, "", "",
			map[string]string{"Content-Type": "text/html; charset=utf-8"},
			"<h1>Forbidden</h1>",
		},
		"HTML 200": {apiserver.HTML(200), 200, "", "", nil, "<html>"},
		"Table":    {apiserver.Table(), 200, "Table", "", nil, "columnDefinitions"},
		"any answer": {
			apiserver.Respond(299, "x/y", "z", "A", "b"), 299, "", "",
			map[string]string{"A": "b", "Content-Type": "x/y"},
			"z",
		},
		"no version": {apiserver.NoListVersion(), 200, "ConfigMapList", "", nil, `"metadata":{}`},
		"rewritten":  {apiserver.Rewrite(bytes.ToUpper), 200, "", "", nil, `"KIND":"CONFIGMAPLIST"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, apiserver.Options{})
			fill(t, s, "x1", "x2")
			s.On(apiserver.Match{Verb: "list"}, tc.fault)
			r := newRaw(t, s).get(configMapPath)
			if r.Code != tc.code || r.Obj.Reason != tc.reason || tc.kind != "" && r.Obj.Kind != tc.kind ||
				!strings.Contains(r.Body, tc.body) {
				t.Errorf("%d %s", r.Code, r.Body)
			}
			for k, v := range tc.header {
				if r.Header.Get(k) != v {
					t.Errorf("header %s is %q, want %q", k, r.Header.Get(k), v)
				}
			}
		})
	}
}

func TestListsThatLie(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	fill(t, s, "x1", "x2", "x3") // 2, 3, 4
	tests := []struct {
		reason         string
		fault          apiserver.Fault
		query          string
		code           int
		names, version string
	}{
		{"empty though there are objects", apiserver.EmptyList(), "", 200, "", "4"},
		{"a part is said to be all", apiserver.TruncateList(2), "", 200, "x1 x2", "4"},
		{"each object twice", apiserver.DuplicateItems(), "", 200, "x1 x1 x2 x2 x3 x3", "4"},
		{"a replica that is behind", apiserver.Lagging(3), "", 200, "x1 x2", "3"},
		{"a replica that is asked for more than it has", apiserver.Lagging(3), "?resourceVersion=4", 504, "", ""},
		{
			"an expired token", apiserver.ExpireContinue(false),
			"?limit=1&continue=" + c.get(configMapPath+"?limit=1").Obj.Metadata.Continue, 410, "", "",
		},
	}
	for _, tc := range tests {
		r := s.On(apiserver.Match{Verb: "list"}, tc.fault)
		if got := c.get(configMapPath + tc.query); got.Code != tc.code || got.names() != tc.names ||
			got.Obj.Metadata.ResourceVersion != tc.version {
			t.Errorf("%s: %d %s", tc.reason, got.Code, got.Body)
		}
		r.Off()
		if got := c.get(configMapPath); got.names() != "x1 x2 x3" {
			t.Errorf("after %s: %s", tc.reason, got.Body)
		}
	}
	s.On(apiserver.Match{Verb: "get"}, apiserver.Lagging(3))
	if r := c.get(configMapPath + "/x3"); r.Code != 404 {
		t.Errorf("a get from a replica that is behind: %d", r.Code)
	}
	if r := c.get(configMapPath + "/x2"); r.Code != 200 {
		t.Errorf("a get of what the replica has: %d", r.Code)
	}
}

func TestRulesCount(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	nth := s.On(apiserver.Match{Resource: "configmaps", Nth: 2}, apiserver.Answer(apiserver.Failure(503)))
	s.On(apiserver.Match{Resource: "secrets", Times: 2}, apiserver.Answer(apiserver.Failure(500)))
	s.On(apiserver.Match{Func: func(r apiserver.Request) bool { return r.Query.Get("limit") == "9" }},
		apiserver.Text(418, "teapot"))
	var got []int
	for _, p := range []string{
		"configmaps", "configmaps", "configmaps", "secrets", "secrets", "secrets", "pods?limit=9",
		"pods",
	} {
		got = append(got, c.get("/api/v1/"+p).Code)
	}
	for i, want := range []int{200, 503, 200, 500, 500, 200, 418, 200} {
		if got[i] != want {
			t.Errorf("request %d: %d, want %d", i, got[i], want)
		}
	}
	if nth.Hits() != 1 {
		t.Errorf("the rule changed %d requests", nth.Hits())
	}
	s.ClearFaults()
	if r := c.get("/api/v1/pods?limit=9"); r.Code != 200 {
		t.Errorf("after ClearFaults: %d", r.Code)
	}
}

// TestStreamsThatLie takes the faults of a watch, on x1, x2, x3 at 2, 3, 4, and x1, x2 changed at 5, 6.
func TestStreamsThatLie(t *testing.T) {
	t.Parallel()
	const initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	tests := map[string]struct {
		fault  apiserver.Fault
		query  string
		frames []string
	}{
		"end at once":   {apiserver.EndAfter(0), "&resourceVersion=2", []string{"END"}},
		"end after one": {apiserver.EndAfter(1), "&resourceVersion=2", []string{"ADDED x2@3", "END"}},
		"410 at once": {
			apiserver.ErrorEvent(0, apiserver.Expired()), "&resourceVersion=2",
			[]string{"ERROR 410 Expired", "END"},
		},
		"500 after two": {
			apiserver.ErrorEvent(2, apiserver.StoreReadError()), "&resourceVersion=2",
			[]string{"ADDED x2@3", "ADDED x3@4", "ERROR 500 StorageReadError", "END"},
		},
		"410 in a WatchList": {
			apiserver.ErrorEvent(1, apiserver.Gone()), initial,
			[]string{"ADDED x1@5", "ERROR 410 Gone", "END"},
		},
		"twice": {
			apiserver.DuplicateEvents(), "&resourceVersion=4",
			[]string{"MODIFIED x1@5", "MODIFIED x1@5", "MODIFIED x2@6", "MODIFIED x2@6"},
		},
		"replayed": {
			apiserver.ReplayEvents(1), "&resourceVersion=3",
			[]string{"ADDED x3@4", "ADDED x3@4", "MODIFIED x1@5", "MODIFIED x1@5", "MODIFIED x2@6"},
		},
		"no end of initial": {
			apiserver.NoInitialEventsEnd(), initial,
			[]string{"ADDED x1@5", "ADDED x2@6", "ADDED x3@4", "MODIFIED x3@7"},
		},
		"plain end of initial": {
			apiserver.PlainInitialEventsEnd(), initial,
			[]string{"ADDED x1@5", "ADDED x2@6", "ADDED x3@4", "BOOKMARK @6", "MODIFIED x3@7"},
		},
		"very old server": {
			apiserver.IgnoreWatchList(), initial,
			[]string{"ADDED x1@5", "ADDED x2@6", "ADDED x3@4", "MODIFIED x3@7"},
		},
		"cut in a frame": {apiserver.Cut(30), "&resourceVersion=4", []string{"BROKEN after 30 bytes"}},
		"lagging": {
			apiserver.Lagging(4), initial,
			[]string{"ADDED x1@2", "ADDED x2@3", "ADDED x3@4", "BOOKMARK end@4", "MODIFIED x1@5", "MODIFIED x2@6"},
		},
		"byte by byte": {apiserver.Fragment(1), "&resourceVersion=4", []string{"MODIFIED x1@5", "MODIFIED x2@6"}},
		"odd pieces":   {apiserver.Fragment(1, 7, 100), "&resourceVersion=4", []string{"MODIFIED x1@5", "MODIFIED x2@6"}},
	}
	for name, tc := range tests {
		for transport, opts := range map[string]apiserver.Options{"tcp": {}, "pipe": {Pipe: true}} {
			t.Run(name+" "+transport, func(t *testing.T) {
				t.Parallel()
				s := start(t, opts)
				fill(t, s, "x1", "x2", "x3")
				put(t, s, "x1", "2")
				put(t, s, "x2", "2")
				s.On(apiserver.Match{Verb: "watch", Times: 1}, tc.fault)
				w := newRaw(t, s).watch(configMapPath + "?watch=true" + tc.query)
				waitFor(t, s, func(l apiserver.Log) bool {
					return l.Requests[0].Events > 0 || l.Requests[0].Done || strings.Contains(name, "cut")
				})
				if strings.Contains(tc.frames[len(tc.frames)-1], "@7") {
					put(t, s, "x3", "2")
				}
				w.expect(tc.frames...)
			})
		}
	}
}

func TestConnectionsThatDie(t *testing.T) {
	t.Parallel()
	for name, opts := range transports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, opts)
			c := typed(t, s).CoreV1().ConfigMaps("a")
			s.On(apiserver.Match{Verb: "create", Times: 1}, apiserver.Drop())
			s.On(apiserver.Match{Verb: "create", Name: "", Nth: 2}, apiserver.DropAfter())
			if _, err := c.Create(t.Context(), configMap("dropped", "1"), metav1.CreateOptions{}); err == nil {
				t.Error("a dropped request has an answer")
			}
			if _, err := s.Object(configMaps, "a", "dropped"); !errors.IsNotFound(err) {
				t.Errorf("a request that was dropped was carried out: %v", err)
			}
			if _, err := c.Create(t.Context(), configMap("lost", "1"), metav1.CreateOptions{}); err == nil {
				t.Error("a lost answer came")
			}
			if _, err := s.Object(configMaps, "a", "lost"); err != nil {
				t.Errorf("a write whose answer was lost did not happen: %v", err)
			}
			s.On(apiserver.Match{Verb: "list", Times: 1}, apiserver.Cut(20))
			if _, err := c.List(t.Context(), metav1.ListOptions{}); err == nil {
				t.Error("half a list was taken for a list")
			}
			w, err := c.Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			<-w.ResultChan()
			s.Down()
			if _, open := <-w.ResultChan(); open {
				t.Error("a watch outlived its server")
			}
			if _, err := c.Get(t.Context(), "lost", metav1.GetOptions{}); err == nil {
				t.Error("a server that is down answers")
			}
			if err := s.Up(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Get(t.Context(), "lost", metav1.GetOptions{}); err != nil {
				t.Errorf("after it came back: %v", err)
			}
		})
	}
}

// TestTimeIsFake runs server and client in a bubble: everything that waits does so on the fake clock.
func TestTimeIsFake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		fill(t, s, "x1")
		tr := &http.Transport{DialContext: s.Dial}
		defer tr.CloseIdleConnections()
		c := raw{t, s, &http.Client{Transport: tr}}
		began := time.Now()
		since := func() time.Duration { return time.Since(began).Round(time.Second) }

		w := c.watch(configMapPath + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=150")
		w.expect("ADDED x1@2", "BOOKMARK end@2", "BOOKMARK @2")
		if since() != time.Minute {
			t.Errorf("the first plain bookmark came after %v", since())
		}
		w.expect("BOOKMARK @2", "BOOKMARK @2", "END")
		if since() != 150*time.Second {
			t.Errorf("the watch ended after %v", since())
		}

		s.On(apiserver.Match{Verb: "watch", Nth: 1}, apiserver.Silent())
		s.On(apiserver.Match{Verb: "watch", Nth: 2}, apiserver.IgnoreTimeout(), apiserver.NoBookmarks())
		began = time.Now()
		w = c.watch(configMapPath + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=90")
		w.expect("END")
		if since() != 90*time.Second {
			t.Errorf("the silent watch ended after %v", since())
		}
		w = c.watch(configMapPath + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=90")
		w.expect("ADDED x1@2", "BOOKMARK end@2")
		time.AfterFunc(time.Hour, func() { put(t, s, "x1", "2") })
		began = time.Now()
		w.expect("MODIFIED x1@3")
		if since() != time.Hour {
			t.Errorf("a frame came after %v", since())
		}
		w.cancel()

		s.On(apiserver.Match{Verb: "get", Times: 1}, apiserver.Delay(time.Minute))
		began = time.Now()
		c.get(configMapPath + "/x1")
		if since() != time.Minute {
			t.Errorf("a delayed answer came after %v", since())
		}
		s.On(apiserver.Match{Verb: "list", Times: 1}, apiserver.Drip(10, time.Second))
		began = time.Now()
		if r := c.get(configMapPath); r.names() != "x1" || since() != time.Duration(len(r.Body)/10)*time.Second {
			t.Errorf("%d bytes dripped in %v", len(r.Body), since())
		}
		s.On(apiserver.Match{Verb: "list"}, apiserver.BlackHole())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+configMapPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.c.Do(req); err == nil || ctx.Err() == nil {
			t.Errorf("a black hole answered: %v", err)
		}
	})
}

func TestEventsAndAnswersAreHeld(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	fill(t, s, "x1")
	held := c.watch(configMapPath + "?watch=true&resourceVersion=2&allowWatchBookmarks=true")
	free := c.watch("/api/v1/configmaps?watch=true&resourceVersion=2")
	waitFor(t, s, func(l apiserver.Log) bool { return len(s.Watches(apiserver.Match{})) == 2 })
	hold := s.HoldEvents(apiserver.Match{Namespace: "a"})
	put(t, s, "x1", "2") // 3
	put(t, s, "x2", "1") // 4
	free.expect("MODIFIED x1@3", "ADDED x2@4")
	s.Bookmark(apiserver.Match{})
	hold.Allow(1)
	held.expect("MODIFIED x1@3")
	put(t, s, "x3", "1") // 5
	free.expect("ADDED x3@5")
	hold.Release()
	held.expect("ADDED x2@4", "ADDED x3@5")

	gate := apiserver.NewGate()
	s.On(apiserver.Match{Verb: "create", Times: 1}, apiserver.HoldResponse(gate))
	answer := make(chan reply, 1)
	go func() {
		r, err := c.do(http.MethodPost, configMapPath, "application/json", `{"metadata":{"name":"y"}}`)
		if err != nil {
			r.Body = err.Error()
		}
		answer <- r
	}()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	held.expect("ADDED y@6") // the event comes before the answer
	select {
	case r := <-answer:
		t.Fatalf("the answer came through a closed gate: %s", r.Body)
	default:
	}
	gate.Open()
	if r := <-answer; r.Code != 201 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}

func TestOpenWatchesCanBeTouched(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	fill(t, s, "x1")
	open := func() (*frames, *apiserver.Watch) {
		w := c.watch(configMapPath + "?watch=true&resourceVersion=1&allowWatchBookmarks=true")
		w.expect("ADDED x1@2")
		all := s.Watches(apiserver.Match{Resource: "configmaps"})
		return w, all[len(all)-1]
	}
	f, w := open()
	w.Bookmark()
	w.BookmarkAt("99")
	w.Send("MODIFIED", []byte(`{"metadata":{"name":"ghost","resourceVersion":"1"}}`))
	w.Write([]byte("{not json\n"))
	w.Error(apiserver.Gone())
	f.expect("BOOKMARK @2", "BOOKMARK @99", "MODIFIED ghost@1", "UNDECODABLE {not json\n", "ERROR 410 Gone", "END")
	f, w = open()
	w.End()
	f.expect("END")
	f, w = open()
	w.Write([]byte(`{"type":"ADDED"`))
	w.Cut()
	f.expect("BROKEN after 15 bytes")
	waitFor(t, s, func(l apiserver.Log) bool { return l.Open(apiserver.Match{Verb: "watch"}) == 0 })
	w.End() // nothing happens
}

func TestPoisonAndHugeObjects(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	c := newRaw(t, s)
	pod := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	put(t, s, "big", strings.Repeat("x", 20<<20)) // 2
	line, err := c.watch(configMapPath + "?watch=true").r.ReadString('\n')
	if err != nil || len(line) < 20<<20 || !strings.HasPrefix(line, `{"type":"ADDED","object":{"kind":"ConfigMap"`) ||
		!strings.HasSuffix(line, "}}\n") {
		t.Errorf("an object of 20 MB does not come through a watch: %d bytes, %v", len(line), err)
	}
	if r := c.get(configMapPath); len(r.Body) < 20<<20 || !strings.HasSuffix(r.Body, "}]}\n") {
		t.Errorf("an object of 20 MB does not come through a list: %d bytes", len(r.Body))
	}
	for _, name := range []string{"good", "bad"} {
		p := newPod(name)
		if _, err := s.Put(p); err != nil {
			t.Fatal(err)
		}
	}
	w := c.watch("/api/v1/pods?watch=true&resourceVersion=4")
	if err := s.Poison(pod, "a", "bad", func(b []byte) []byte {
		return bytes.Replace(b, []byte(`"spec":{`), []byte(`"spec":"poison","was":{`), 1)
	}); err != nil {
		t.Fatal(err)
	}
	w.expect("MODIFIED bad@5")
	cfg := s.Config()
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		cfg.ContentType, cfg.AcceptContentTypes = contentType, contentType
		if l, err := typedFor(t, cfg).CoreV1().Pods("a").List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Errorf("%s: poison was decoded: %v", contentType, l.Items)
		}
		if p, err := typedFor(t, cfg).CoreV1().Pods("a").Get(t.Context(), "good", metav1.GetOptions{}); err != nil ||
			p.Name != "good" {
			t.Errorf("%s: the other object: %v", contentType, err)
		}
	}
	if err := s.Poison(pod, "a", "good", func([]byte) []byte { return []byte(`{"kind":"Other"}`) }); err != nil {
		t.Fatal(err)
	}
	if r := c.get("/api/v1/namespaces/a/pods/good"); r.Body != `{"kind":"Other"}` {
		t.Errorf("bytes are not sent as they are: %s", r.Body)
	}
	if err := s.Remove(pod, "a", "bad"); err != nil {
		t.Fatal(err)
	}
	w.expect(`MODIFIED @`, "DELETED bad@7")
}

// TestBookmarkAfterCompaction: a watch that was kept from its events does not say that there were none.
func TestBookmarkAfterCompaction(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	fill(t, s, "x1", "x2")
	s.On(apiserver.Match{Verb: "watch"}, apiserver.Silent())
	f := newRaw(t, s).watch("/api/v1/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=2")
	waitFor(t, s, func(apiserver.Log) bool { return len(s.Watches(apiserver.Match{})) == 1 })
	s.Compact(0)
	w := s.Watches(apiserver.Match{})[0]
	w.Bookmark()
	w.End()
	f.expect("END")
}
