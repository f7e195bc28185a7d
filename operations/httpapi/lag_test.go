package httpapi_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// setupBehind is setup with a store that is empty until watch is called.
func setupBehind(t *testing.T, change func(*api, *httpapi.Options)) (a *api, watch func()) {
	st := store.New(store.Options{
		Resource: v1alpha1.OperationsResource, Kind: v1alpha1.GroupVersion.WithKind("Operation"),
		Namespaced: true,
	})
	t.Cleanup(st.Close)
	a = setupWith(t, func(a *api, o *httpapi.Options) { o.Operations = st; change(a, o) })
	return a, func() {
		src, err := source.New(source.Config{
			REST: a.config, Resource: v1alpha1.OperationsResource,
			Namespaces: []string{a.namespace},
		}, st.Sink)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(a.ctx)
		var running sync.WaitGroup
		running.Go(func() { _ = src.Run(ctx) }) // its error comes from the end of the context
		t.Cleanup(func() { stop(); running.Wait() })
	}
}

func TestPageBeforeAnythingIsKnown(t *testing.T) {
	a, watch := setupBehind(t, func(_ *api, o *httpapi.Options) { anonymous(o); o.Timeout = 2 * time.Second })
	a.eventually(func() bool { return a.do("", "POST", "/operations", deletion).status == http.StatusAccepted })
	if got := a.do("", "GET", "/operations", ""); got.status != http.StatusGatewayTimeout {
		t.Errorf("a page of an unsynced store: %+v", got)
	}
	watch()
	a.eventually(func() bool { return strings.Contains(a.do("", "GET", "/operations", "").body, `"resourceID":"1"`) })
}

// TestEventsOfOneOperation schedules another operation before the stream has seen the end of its own one.
func TestEventsOfOneOperation(t *testing.T) {
	a, watch := setupBehind(t, func(_ *api, o *httpapi.Options) { anonymous(o) })
	a.do("", "POST", "/operations", deletion, "Idempotency-Key", "one")
	// a GET would wait for the end
	if got := a.do("", "HEAD", "/operations/app/1/events", ""); got.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %+v", got)
	}
	req, err := http.NewRequestWithContext(a.ctx, "GET", a.url+"/operations/app/1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a.finish("app-1", v1alpha1.PhaseFailed)
	a.do("", "POST", "/operations", deletion, "Idempotency-Key", "two")
	watch()
	var got []string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			got = append(got, name)
		} else if strings.Contains(lines.Text(), `"operationID":"two"`) {
			t.Errorf("it shows another operation: %s", lines.Text())
		}
	}
	if diff := cmp.Diff([]string{"progress", "failed"}, got); diff != "" || lines.Err() != nil {
		t.Errorf("%v %s", lines.Err(), diff)
	}
}

// TestEventsOfADeletedOperation deletes the operation after the first read. The store knows the deletion before the
// stream starts.
func TestEventsOfADeletedOperation(t *testing.T) {
	var a *api
	var watch func()
	var known *cache.Store
	var once sync.Once
	gone := func() {
		cursor := known.Subscribe(store.SubscribeOptions{From: store.FromNow})
		defer cursor.Close()
		watch()
		for _, want := range []store.EventType{store.Added, store.Deleted} {
			for {
				event, err := cursor.Next(a.ctx)
				if err != nil {
					t.Errorf("waiting for %v: %v", want, err)
					return
				}
				if event.Type == want {
					break
				}
			}
			if want == store.Added {
				_, err := call.Do(a.ctx, a.calls, call.Request{
					Verb: call.VerbDelete, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: a.namespace,
					Name: "app-1",
				}, call.Policy{})
				if err != nil {
					t.Error(err)
				}
			}
		}
	}
	a, watch = setupBehind(t, func(a *api, o *httpapi.Options) {
		anonymous(o)
		known = o.Operations
		config := disturb.Config(a.config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil && answer.StatusCode == http.StatusOK && r.Method == http.MethodGet &&
				strings.HasSuffix(r.URL.Path, "/operations/app-1") {
				once.Do(gone)
			}
			return answer, err
		})
		calls, err := call.New(call.Options{Config: config})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(calls.Close)
		if o.Scheduler, err = operations.NewScheduler(
			operations.Options{Config: config, Calls: calls, Namespace: o.Scheduler.Namespace()},
		); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(o.Scheduler.Close)
	})
	a.do("", "POST", "/operations", deletion)
	req, err := http.NewRequestWithContext(a.ctx, "GET", a.url+"/operations/app/1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var names []string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			names = append(names, name)
		}
	}
	if diff := cmp.Diff([]string{"progress", "gone"}, names); diff != "" || lines.Err() != nil {
		t.Errorf("%v %s", lines.Err(), diff)
	}
}

// TestEventsResumed reconnects with the last event id after another operation has replaced the one of the stream.
func TestEventsResumed(t *testing.T) {
	a := setup(t, anonymous)
	listen := func(last string, events int) (status int, names []string, id string) {
		t.Helper()
		req, err := http.NewRequestWithContext(a.ctx, "GET", a.url+"/operations/app/1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Last-Event-ID", last)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); (len(names) < events || id == "") && lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				names = append(names, name)
			} else if at, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = at
			}
		}
		return resp.StatusCode, names, id
	}
	a.do("", "POST", "/operations", deletion, "Idempotency-Key", "one")
	_, _, heard := listen("", 1)
	a.finish("app-1", v1alpha1.PhaseFailed)
	a.do("", "POST", "/operations", deletion, "Idempotency-Key", "two")
	_, names, ended := listen(heard, 1)
	for ; slices.Equal(names, []string{"progress"}); _, names, ended = listen(heard, 1) { // a GET blocks
	}
	if diff := cmp.Diff([]string{"failed"}, names); diff != "" || !strings.HasPrefix(ended, "one.") {
		t.Errorf("%s %s", ended, diff)
	}
	if status, _, _ := listen(ended, 1); status != http.StatusNoContent {
		t.Errorf("after the end: %d", status)
	}
	if _, names, id := listen("forgotten.1", 1); len(names) != 1 || names[0] != "gone" ||
		!strings.HasPrefix(id, "forgotten.") {
		t.Errorf("an unknown event id: %v %s", names, id)
	}
	a.eventually(func() bool { return a.view(a.do("", "GET", "/operations/app/1", "")).OperationID == "two" })
	if _, names, id := listen("nonsense", 1); len(names) != 1 || names[0] != "progress" || !strings.HasPrefix(id, "two.") {
		t.Errorf("nonsense: %v %s", names, id)
	}
}

// TestBodyThatNeverComes lets callers take all places and send no body.
func TestBodyThatNeverComes(t *testing.T) {
	const places = 4
	a := setup(t, func(o *httpapi.Options) { anonymous(o); o.MaxInFlight, o.Timeout = places, time.Second })
	var callers sync.WaitGroup
	for i := range places {
		path, want := "/callbacks/good", http.StatusRequestTimeout
		if i%2 == 0 { // refused before the body is read
			path, want = "/operations/app/9", http.StatusMethodNotAllowed
		}
		conn, err := (&net.Dialer{}).DialContext(a.ctx, "tcp", strings.TrimPrefix(a.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		callers.Go(func() {
			defer conn.Close()
			if _, err := conn.Write([]byte("POST " + path +
				" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")); err != nil {
				t.Error(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s with a body that never comes: %s", path, resp.Status)
			}
		})
	}
	callers.Wait()
	// The places are free again. On a busy machine a request may time out.
	a.eventually(func() bool { return a.do("", "GET", "/operations", "").status == http.StatusOK })
}
