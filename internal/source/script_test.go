package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// reply answers one request. It may block; the request's context ends when the client disconnects.
type reply func(w http.ResponseWriter, r *http.Request)

// script is a server that answers each request with the next reply of its kind. The last reply repeats for ever.
type script struct {
	t        *testing.T
	mu       sync.Mutex
	lists    []reply
	watches  []reply
	requests []url.Values
	server   *httptest.Server
	pipes    *pipes       // in a bubble, instead of server
	http     *http.Server // of server or pipes
}

func serve(t *testing.T, lists, watches []reply) *script {
	s := &script{t: t, lists: lists, watches: watches}
	s.server = httptest.NewServer(s)
	s.http = s.server.Config
	t.Cleanup(s.server.Close)
	return s
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	q := r.URL.Query()
	s.requests = append(s.requests, q)
	queue := &s.lists
	if q.Get("watch") == "true" {
		queue = &s.watches
	}
	if len(*queue) == 0 {
		s.mu.Unlock()
		http.Error(w, "not in the script", http.StatusTeapot)
		return
	}
	next := (*queue)[0]
	if len(*queue) > 1 {
		*queue = (*queue)[1:]
	}
	s.mu.Unlock()
	next(w, r)
}

// seen returns the requests so far, reduced to their interesting parameters.
func (s *script) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, q := range s.requests {
		kind := "LIST"
		if q.Get("watch") == "true" {
			kind = "WATCH"
		}
		for _, k := range []string{
			"resourceVersion", "resourceVersionMatch", "continue", "limit", "sendInitialEvents",
			"labelSelector",
		} {
			if q.Has(k) {
				kind += " " + k + "=" + q.Get(k)
			}
		}
		all = append(all, kind)
	}
	return all
}

// run runs a source against the script until the test ends.
func (s *script) run(r *recorder, change ...func(*source.Config)) *source.Source {
	s.t.Helper()
	cfg := source.Config{
		REST: s.config(), Resource: configMaps,
		BackoffBase: 2 * time.Millisecond, BackoffCap: 20 * time.Millisecond, NoWatchList: true,
	}
	for _, f := range change {
		f(&cfg)
	}
	src, err := source.New(cfg, r.sink)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- src.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				s.t.Error(err)
			}
		case <-time.After(testlimit.Wait):
			s.t.Error("source does not stop")
		}
	})
	return src
}

// config returns the configuration of a client.
func (s *script) config() *rest.Config {
	if s.pipes != nil {
		return &rest.Config{Host: "http://pipe", Dial: s.pipes.dial}
	}
	return &rest.Config{Host: s.server.URL}
}

func object(name string, version int) string {
	return fmt.Sprintf(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":%q,"uid":"u-%s","resourceVersion":"%d"}}`,
		name, name, version,
	)
}

func event(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

func bookmark(version int) string {
	return event("BOOKMARK", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"%d"}}`,
		version))
}

func initialEnd(version int) string {
	return event("BOOKMARK",
		fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}`, version,
		))
}

func listBody(version int, next string, objects ...string) string {
	return fmt.Sprintf(
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`,
		version, next, strings.Join(objects, ","),
	)
}

// list answers with a list.
func list(version int, objects ...string) reply { return body(listBody(version, "", objects...)) }

func page(version int, next string, objects ...string) reply {
	return body(listBody(version, next, objects...))
}

func body(text string) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
	}
}

// status answers with a Status.
func status(code int, reason, message string, more ...string) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, statusBody(code, reason, message, more...))
	}
}

func statusBody(code int, reason, message string, details ...string) string {
	d := "{}"
	if len(details) > 0 {
		d = details[0]
	}
	b, _ := json.Marshal(message)
	return fmt.Sprintf(
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%s,"reason":%q,"code":%d,"details":%s}`,
		b, reason, code, d,
	)
}

// watch writes frames, one by one, and keeps the stream open until the client disconnects.
func watch(frames ...string) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		watchThenEnd(frames...)(w, r)
		<-r.Context().Done()
	}
}

// watchThenEnd writes frames and ends the stream as a server does at timeoutSeconds.
func watchThenEnd(frames ...string) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for _, f := range frames {
			fmt.Fprint(w, f)
			w.(http.Flusher).Flush()
		}
	}
}

// watchThenBreak writes frames and breaks the connection.
func watchThenBreak(frames ...string) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		watchThenEnd(frames...)(w, r)
		panic(http.ErrAbortHandler)
	}
}
