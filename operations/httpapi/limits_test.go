package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// raw sends a request, or a part of one, on a connection of its own.
func (a *api) raw(text string) net.Conn {
	a.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(a.ctx, "tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { conn.Close() })
	deadline, _ := a.ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		a.t.Fatal(err)
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		a.t.Fatal(err)
	}
	return conn
}

func (a *api) answered(conn net.Conn) int {
	a.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		a.t.Errorf("no answer: %v", err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestNothingIsReadForStrangers sends the heads of requests whose bodies never come. A caller without rights gets an
// answer at once. The timeouts are longer than the test.
func TestNothingIsReadForStrangers(t *testing.T) {
	a := setup(t, func(o *httpapi.Options) { o.MaxInFlight, o.MaxCallbacks, o.Timeout = 4, 4, 10*time.Minute })
	for head, want := range map[string]int{
		"POST /callbacks/x": 404, "POST /callbacks/" + strings.Repeat("x", 5000): 404, "POST /operations": 401,
		"POST /operations/a/b:cancel": 401,
		"POST /operations/a/b":        405, "POST /nothing": 404, "GET /operations": 401, "GET /operations/a/b/events": 401,
		"PUT /operations":   405,
		"GET /openapi.json": 200, "POST /operations?namespace=../x": 404,
	} {
		for _, body := range []string{"Content-Length: 100", "Transfer-Encoding: chunked", "Content-Length: 1000000000"} {
			for range 8 {
				if got := a.answered(a.raw(head + " HTTP/1.1\r\nHost: x\r\n" + body + "\r\n\r\n{")); got != want {
					t.Errorf("%s with %s: %d, want %d", head, body, got, want)
				}
			}
		}
	}
}

// TestCallbacksOfOneNamespace: hanging callbacks of one namespace do not block those of others.
func TestCallbacksOfOneNamespace(t *testing.T) {
	release := make(chan struct{})
	registry := prometheus.NewRegistry()
	a := setup(t, func(o *httpapi.Options) { o.MaxCallbacks, o.Registerer = 4, registry })
	a.callbacks.hold = release
	const success = `{"status":"SUCCEEDED"}`
	var hanging sync.WaitGroup
	for i := range 10 {
		hanging.Go(func() {
			got := a.do("", "POST", fmt.Sprintf("/callbacks/them%%2F%d", i), success)
			if got.status != http.StatusNoContent &&
				(got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "") {
				t.Errorf("%+v", got)
			}
		})
	}
	a.eventually(func() bool { return a.callbacks.held.Load() == 2 })
	for range 2 { // a malformed one first, which does not use up the token
		a.do("", "POST", "/callbacks/good", `{"status":"maybe"}`)
	}
	if got := a.do("", "POST", "/callbacks/good", success); got.status != http.StatusNoContent {
		t.Errorf("a callback of another namespace: %+v", got)
	}
	for range 20 {
		if got := a.do("", "POST", "/callbacks/good", success); got.status != http.StatusConflict {
			t.Errorf("used already: %+v", got)
		}
	}
	if a.callbacks.take != 2 {
		t.Errorf("a token known to be used was checked %d times", a.callbacks.take)
	}
	if got := a.do("", "POST", "/callbacks/one%2Flarge", strings.Repeat(" ", 17<<10)+
		success); got.status != http.StatusRequestEntityTooLarge || !strings.Contains(got.body, "16 KiB") {
		t.Errorf("17 KiB: %+v", got)
	}
	if held := a.callbacks.held.Load(); held != 2 {
		t.Errorf("%d callbacks of one namespace are under way", held)
	}
	close(release)
	hanging.Wait()
	names := map[string]bool{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		names[f.GetName()] = true
	}
	if !names["fairlead_http_in_flight"] {
		t.Errorf("metrics: %v", names)
	}
}

// TestStreamsOfOneCaller: a caller with its maximum of streams leaves some for others.
func TestStreamsOfOneCaller(t *testing.T) {
	a := setup(t, func(o *httpapi.Options) { o.MaxStreams = 12 })
	a.do("all", "POST", "/operations", deletion)
	ctx, end := context.WithCancel(a.ctx)
	defer end()
	listen := func(user string) (status int, after string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, "GET", a.url+"/operations/app/1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+a.tokens[user])
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	n := 0
	status, after := listen("all")
	for ; status == http.StatusOK; status, after = listen("all") {
		n++
	}
	if n != 4 || status != http.StatusTooManyRequests || after != "5" {
		t.Errorf("a caller has %d of 12 streams, and then gets %d, with Retry-After %q", n, status, after)
	}
	if got := a.do("all", "GET", "/operations/app/1/events", ""); got.status != http.StatusTooManyRequests ||
		!strings.Contains(got.body, "this caller has as many") {
		t.Errorf("%+v", got)
	}
	if status, _ := listen("reader"); status != http.StatusOK {
		t.Errorf("another caller gets %d", status)
	}
	if got := a.do("all", "GET", "/operations/app/1", ""); got.status != http.StatusOK {
		t.Errorf("streams take places of requests: %+v", got)
	}
}

// TestStreamOutlivesTimeout: a stream without events stays open for longer than the timeout of requests, with HTTP/2,
// too.
func TestStreamOutlivesTimeout(t *testing.T) {
	const timeout = time.Second
	a := setup(t, func(o *httpapi.Options) { anonymous(o); o.Timeout = timeout })
	a.eventually(func() bool { return a.do("", "POST", "/operations", deletion).status == http.StatusAccepted })
	server := httptest.NewUnstartedServer(a.handler)
	server.EnableHTTP2 = true
	server.Config.WriteTimeout = timeout
	server.StartTLS()
	t.Cleanup(server.Close)
	req, err := http.NewRequestWithContext(a.ctx, "GET", server.URL+"/operations/app/1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	var resp *http.Response
	a.eventually(func() bool { // on a busy machine, connecting may take longer than the timeout
		if resp, err = server.Client().Do(req); err == nil && resp.StatusCode != http.StatusOK {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	defer resp.Body.Close()
	long := time.NewTimer(3 * timeout)
	<-long.C // the timeout must not apply
	a.eventually(func() bool { return a.do("", "GET", "/operations", "").status == http.StatusOK })
	a.finish("app-1", v1alpha1.PhaseSuccess)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), "event: succeeded") || resp.ProtoMajor != 2 {
		t.Errorf("%s: %v %s", resp.Proto, err, rest)
	}
}

// TestSlowBodiesOfOneCaller: slow bodies take only places of their sender.
func TestSlowBodiesOfOneCaller(t *testing.T) {
	registry := prometheus.NewRegistry()
	a := setup(t, func(o *httpapi.Options) { o.MaxInFlight, o.Registerer = 6, registry })
	for range 6 {
		a.raw("POST /operations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + a.tokens["all"] +
			"\r\nContent-Length: 100\r\n\r\n{")
	}
	a.eventually(func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "fairlead_http_in_flight" && m.GetLabel()[0].GetValue() == "requests" &&
					m.GetGauge().GetValue() == 2 {
					return true
				}
			}
		}
		return false
	})
	for range 10 {
		if got := a.do("reader", "GET", "/operations", ""); got.status != http.StatusOK {
			t.Errorf("another caller: %+v", got)
		}
	}
}

// TestWordyRequests: the refusal of a very long request names at most 100 fields in at most 64 KiB.
func TestWordyRequests(t *testing.T) {
	a := setup(t, anonymous)
	list := func(format string, n int) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, format, i)
		}
		return all.String()
	}
	for reason, body := range map[string]string{
		"unknown fields":             `{"operationType":"Drop"` + list(`,"%x":1`, 40000) + `}`,
		"a long name":                `{"` + strings.Repeat("n", 400<<10) + `":1}`,
		"invalid names":              `{"webhookIDs":["A"` + list(`,"%X."`, 40000) + `]}`,
		"invalid resources":          `{"relatedResources":[0` + strings.Repeat(",0", 100000) + `]}`,
		"names and fields, together": `{"webhookIDs":["A"` + list(`,"%X."`, 20000) + `]` + list(`,"%x":1`, 20000) + `}`,
	} {
		got := a.do("", "POST", "/operations", body)
		var p httpapi.Problem
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || len(p.Fields) == 0 || len(p.Fields) > 100 ||
			len(got.body) > 64<<10 {
			t.Errorf("%s: %d with %d fields in %d bytes: %v", reason, got.status, len(p.Fields), len(got.body), err)
		}
	}
}

// TestLargeOperationsMakeShortPages: the size of a page is bounded, too, and no operation is lost between two pages.
func TestLargeOperationsMakeShortPages(t *testing.T) {
	a := setup(t, anonymous)
	var want []string
	for i := range 20 {
		var related []string
		for j := range 64 {
			related = append(related, fmt.Sprintf(`{"resourceType":"db","resourceID":"%s%d"}`, strings.Repeat("x", 500), j))
		}
		id := fmt.Sprintf("%02d", i)
		want = append(want, id)
		body := fmt.Sprintf(`{"operationType":"Delete","resourceType":"app","resourceID":%q,"relatedResources":[%s]}`, id,
			strings.Join(related, ","))
		if got := a.do("", "POST", "/operations", body); got.status != http.StatusAccepted {
			t.Fatalf("%+v", got)
		}
	}
	a.eventually(func() bool { return len(a.pages()) == 20 })
	sizes := 0
	var got []string
	for next := ""; ; {
		page := a.page(next)
		for _, v := range page.Items {
			got = append(got, v.ResourceID)
		}
		if sizes++; len(page.Items) > 16 {
			t.Errorf("a page has %d operations of 36 KB", len(page.Items))
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || sizes != 2 {
		t.Errorf("%d pages (-want +got):\n%s", sizes, diff)
	}
}

func (a *api) page(next string) (page httpapi.Page) {
	a.t.Helper()
	got := a.do("", "GET", "/operations?limit=500&continue="+next, "")
	if err := json.Unmarshal([]byte(got.body), &page); err != nil {
		a.t.Fatalf("%v: %s", err, got.body)
	}
	return page
}

// pages returns the operations of all pages.
func (a *api) pages() (ids []string) {
	for next := ""; ; {
		page := a.page(next)
		for _, v := range page.Items {
			ids = append(ids, v.ResourceID)
		}
		if next = page.Continue; next == "" {
			return ids
		}
	}
}
