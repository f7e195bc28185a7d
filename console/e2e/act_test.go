package e2e_test

import (
	"bufio"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/testbed/consolebed"
	"github.com/fairlead-io/fairlead/operations"
)

var stamp = regexp.MustCompile(`<time[^>]*>[^<]*</time>|value="[A-Za-z0-9_-]{43}"`)

// maskTimes removes the parts in which two renderings of a page differ.
func maskTimes(page string) string { return stamp.ReplaceAllString(page, "") }

// TestAct: a reader with the right cancels and retries, but only by a form of the page.
func TestAct(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.Webhook("job")
	w.Webhook("refuse")
	w.User("admin", true, consolebed.Rule(consolebed.Group, "operations", "get", "list", "update"))
	w.User("reader", false, consolebed.Rule(consolebed.Group, "operations", "get", "list"))
	op, failing := w.Schedule("polls", "job"), w.Schedule("fails", "refuse")
	admin, reader := w.Login("admin"), w.Login("reader")
	csrf := w.CSRF(admin, w.Path(op))
	page := w.Send(reader, "", http.MethodGet, w.Path(op), nil)
	if strings.Contains(page.Body, "/cancel") {
		t.Error("a reader without the right sees the button")
	}
	id := op.EffectiveID()
	for name, tc := range map[string]struct {
		browser *http.Client
		form    url.Values
		want    int
	}{
		"NoToken":     {admin, url.Values{"id": {id}}, http.StatusForbidden},
		"Another's":   {admin, url.Values{"id": {id}, "csrf": {w.CSRF(reader, w.Path(op))}}, http.StatusForbidden},
		"NoRight":     {reader, url.Values{"id": {id}, "csrf": {w.CSRF(reader, w.Path(op))}}, http.StatusNotFound},
		"NobodyAtAll": {w.Browser(), url.Values{"id": {id}, "csrf": {csrf}}, http.StatusUnauthorized},
	} {
		if got := w.Send(tc.browser, "", http.MethodPost, w.Path(op)+"/cancel", tc.form); got.Status != tc.want {
			t.Errorf("%s: %d, want %d: %s", name, got.Status, tc.want, got.Body)
		}
	}
	if got := w.Send(admin, "", http.MethodPost, w.Path(op)+"/cancel",
		url.Values{"id": {"another"}, "csrf": {csrf}}); got.Status != http.StatusConflict &&
		got.Status != http.StatusNotFound {
		t.Errorf("the cancellation of a replaced operation: %d: %s", got.Status, got.Body)
	}
	if now, err := w.Scheduler.Get(w.Ctx, operations.Resource{Type: "App", ID: "polls"}); err != nil ||
		now.Spec.CancelRequested {
		t.Fatalf("a refused request has canceled it: %+v %v", now, err)
	}
	if got := w.Send(admin, "", http.MethodPost, w.Path(op)+"/cancel",
		url.Values{"id": {id}, "csrf": {csrf}}); got.Status != http.StatusSeeOther {
		t.Fatalf("the answer to the cancellation is %d: %s", got.Status, got.Body)
	}
	v, err := w.Scheduler.Wait(w.Ctx, operations.Resource{Type: "App", ID: "polls"}, id, nil)
	if err != nil || v.Status != operations.Failed {
		t.Errorf("after the cancellation: %+v %v", v, err)
	}
	if _, err := w.Scheduler.Wait(w.Ctx, operations.Resource{Type: "App", ID: "fails"}, failing.EffectiveID(),
		nil); err != nil {
		t.Fatal(err)
	}
	w.Eventually("the button", func() bool {
		return strings.Contains(w.Send(admin, "", http.MethodGet, w.Path(failing), nil).Body, "/retry")
	})
	form := url.Values{"csrf": {w.CSRF(admin, w.Path(failing))}}
	if got := w.Send(admin, "", http.MethodPost, w.Path(failing)+"/retry", form); got.Status != http.StatusSeeOther {
		t.Fatalf("the answer to the retry is %d: %s", got.Status, got.Body)
	}
	again, err := w.Scheduler.Get(w.Ctx, operations.Resource{Type: "App", ID: "fails"})
	if err != nil || again.EffectiveID() == failing.EffectiveID() {
		t.Errorf("it was not scheduled again: %+v %v", again, err)
	}
	if got := w.Send(admin, "", http.MethodPost, w.Path(failing)+"/explode", form); got.Status != http.StatusNotFound {
		t.Errorf("an unknown verb: %d", got.Status)
	}
}

// TestLiveOver: the stream of a page without changes ends with its reader's token, and says so. A later stream is
// refused.
func TestLiveOver(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.User("leaver", true, consolebed.Rule(consolebed.Group, "operations", "get", "list"))
	browser := w.Login("leaver")
	live := w.Server.URL + "/console/live/operations"
	r, err := http.NewRequestWithContext(w.Ctx, http.MethodGet, live, nil)
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
		if strings.HasPrefix(lines.Text(), "data: \"") { // the page is shown
			if err := w.Clients.CoreV1().ServiceAccounts(w.Namespace).Delete(w.Ctx, "leaver",
				metav1.DeleteOptions{}); err != nil {
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
	if got := w.Send(browser, "", http.MethodHead, "/console/operations", nil); got.Status != http.StatusUnauthorized {
		t.Errorf("a script that requests the page gets %d", got.Status)
	}
}
