package console_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operation"
)

var stamp = regexp.MustCompile(`<time[^>]*>[^<]*</time>|value="[A-Za-z0-9_-]{43}"`)

// maskTimes leaves out what differs between two pages that are made one after the other.
func maskTimes(page string) string { return stamp.ReplaceAllString(page, "") }

// TestAct: who has the right cancels and retries, by a form of the page and no other.
func TestAct(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.webhook("job")
	w.webhook("refuse")
	w.user("admin", true, rule(group, "operations", "get", "list", "update"))
	w.user("reader", false, rule(group, "operations", "get", "list"))
	op, failing := w.schedule("polls", "job"), w.schedule("fails", "refuse")
	admin, reader := w.login("admin"), w.login("reader")
	csrf := w.csrf(admin, w.path(op))
	page := w.send(reader, "", http.MethodGet, w.path(op), nil)
	if strings.Contains(page.body, "/cancel") {
		t.Error("who may not cancel is shown the button")
	}
	id := op.EffectiveID()
	for name, tc := range map[string]struct {
		browser *http.Client
		form    url.Values
		want    int
	}{
		"NoToken":     {admin, url.Values{"id": {id}}, http.StatusForbidden},
		"Another's":   {admin, url.Values{"id": {id}, "csrf": {w.csrf(reader, w.path(op))}}, http.StatusForbidden},
		"NoRight":     {reader, url.Values{"id": {id}, "csrf": {w.csrf(reader, w.path(op))}}, http.StatusNotFound},
		"NobodyAtAll": {w.browser(), url.Values{"id": {id}, "csrf": {csrf}}, http.StatusUnauthorized},
	} {
		if got := w.send(tc.browser, "", http.MethodPost, w.path(op)+"/cancel", tc.form); got.status != tc.want {
			t.Errorf("%s: %d, want %d: %s", name, got.status, tc.want, got.body)
		}
	}
	if got := w.send(admin, "", http.MethodPost, w.path(op)+"/cancel", url.Values{"id": {"another"}, "csrf": {csrf}}); got.status != http.StatusConflict &&
		got.status != http.StatusNotFound {
		t.Errorf("the cancellation of an operation that was shown before is answered %d: %s", got.status, got.body)
	}
	if now, err := w.scheduler.Get(w.ctx, operation.Resource{Type: "App", ID: "polls"}); err != nil || now.Spec.CancelRequested {
		t.Fatalf("it was cancelled by what was refused: %+v %v", now, err)
	}
	if got := w.send(admin, "", http.MethodPost, w.path(op)+"/cancel", url.Values{"id": {id}, "csrf": {csrf}}); got.status != http.StatusSeeOther {
		t.Fatalf("the cancellation is answered %d: %s", got.status, got.body)
	}
	v, err := w.scheduler.Wait(w.ctx, operation.Resource{Type: "App", ID: "polls"}, id, nil)
	if err != nil || v.Status != operation.Failed {
		t.Errorf("after the cancellation: %+v %v", v, err)
	}
	if _, err := w.scheduler.Wait(w.ctx, operation.Resource{Type: "App", ID: "fails"}, failing.EffectiveID(), nil); err != nil {
		t.Fatal(err)
	}
	w.eventually("the button", func() bool {
		return strings.Contains(w.send(admin, "", http.MethodGet, w.path(failing), nil).body, "/retry")
	})
	form := url.Values{"csrf": {w.csrf(admin, w.path(failing))}}
	if got := w.send(admin, "", http.MethodPost, w.path(failing)+"/retry", form); got.status != http.StatusSeeOther {
		t.Fatalf("the retry is answered %d: %s", got.status, got.body)
	}
	again, err := w.scheduler.Get(w.ctx, operation.Resource{Type: "App", ID: "fails"})
	if err != nil || again.EffectiveID() == failing.EffectiveID() {
		t.Errorf("it was not scheduled again: %+v %v", again, err)
	}
	if got := w.send(admin, "", http.MethodPost, w.path(failing)+"/explode", form); got.status != http.StatusNotFound {
		t.Errorf("a verb that there is not: %d", got.status)
	}
}

// TestLive: an open page is told of what changes, as it would show it itself.
func TestLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	w.webhook("job")
	op := w.schedule("first", "job")
	r, err := http.NewRequestWithContext(w.ctx, http.MethodGet,
		w.server.URL+"/console/live/operations?namespace="+w.namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.browser().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("it is answered as %s", got)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var shown string
			if err := json.Unmarshal([]byte(data), &shown); err != nil {
				t.Fatalf("%v: %s", err, data)
			}
			if strings.Contains(shown, want) {
				return
			}
		}
		t.Fatalf("the stream ended without %q: %v", want, lines.Err())
	}
	next("App/first")
	w.schedule("second", "job")
	next("App/second")
	if _, err := w.scheduler.Cancel(w.ctx, operation.Resource{Type: "App", ID: "first"}, op.EffectiveID()); err != nil {
		t.Fatal(err)
	}
	next("failed")
}

// TestLiveOver: the stream of a page on which nothing changes ends when its reader's token does, and says so; one that comes
// after it is not begun.
func TestLiveOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.user("leaver", true, rule(group, "operations", "get", "list"))
	browser := w.login("leaver")
	live := w.server.URL + "/console/live/operations"
	r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, live, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	said := []string{}
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: \"") { // it is shown
			if err := w.clients.CoreV1().ServiceAccounts(w.namespace).Delete(w.ctx, "leaver", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			said = append(said, event)
		}
	}
	if err := lines.Err(); err != nil || len(said) != 1 || said[0] != "over" {
		t.Errorf("it ends with %q, %v", said, err)
	}
	if got := w.send(browser, "", http.MethodHead, "/console/operations", nil); got.status != http.StatusUnauthorized {
		t.Errorf("a script that asks for the page is answered %d", got.status)
	}
}

// TestTries: the page of an operation that is tried again shows each try with its status.
func TestTries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	w.webhook("fail")
	op := w.schedule("again", "fail")
	w.eventually("two tries", func() bool {
		body := w.get("", w.path(op)).body
		return strings.Count(body, "try, HTTP 500: to be tried again") >= 2 &&
			strings.Count(body, `<td data-name="Means">to be tried again</td>`) >= 2 && !strings.Contains(body, "There were more")
	})
}
