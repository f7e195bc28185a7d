package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestStuckOperations: the overview groups stuck operations by their first cause. The list shows them and the errors of
// failed ones. The page of a Webhook counts the outcomes of its operations.
func TestStuckOperations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	for _, hook := range []string{"job", "refuse", "fail"} {
		w.Webhook(hook)
	}
	const n = 12
	for i := range n {
		w.Schedule(fmt.Sprint("missing-", i), "no-such-webhook")
	}
	polled, failed, again := w.Schedule("polls", "job"), w.Schedule("refused", "refuse"), w.Schedule("again", "fail")
	page := func(what, path string, parts ...string) (body string) {
		t.Helper()
		w.Eventually(what, func() bool {
			body = w.Get("", path).Body
			for _, part := range parts {
				if !strings.Contains(body, part) {
					return false
				}
			}
			return true
		})
		return body
	}
	overview := page("grouped by cause", "/console/overview", "cause=WebhookMissing", "cause=BackOff",
		fmt.Sprintf("<b>%d</b> operations wait for a missing Webhook</a>", n), "<b>1</b> operation waits to retry")
	if strings.Contains(overview, "missing-0") || strings.Contains(overview, "stuck-Parked") {
		t.Errorf("The overview has a row for one of a group, or calls one stuck that is polled:\n%s", overview)
	}
	list := page("filtered by cause", "/console/operations?status=stuck&cause=WebhookMissing",
		fmt.Sprintf("1 to %d of %d", n, n))
	if strings.Contains(list, "App/again") || !strings.Contains(list, "App/missing-0") {
		t.Errorf("The list of one cause has others:\n%s", list)
	}
	page("failed rows with their error", "/console/operations?status=FAILED", "App/refused", "WebhookFailed: answered 400")
	page("stuck rows with their error", "/console/operations?webhook=fail", "App/again", "webhook fail: answered 500")

	if body := page("failed", w.Path(failed), "Why it failed", `<p class="failed">Failed.</p>`); strings.Contains(body,
		"Nothing is wrong") {
		t.Errorf("Nothing is wrong with an operation that failed:\n%s", body)
	}
	if body := page("tried again", w.Path(again), "Why it makes no progress"); strings.Contains(body, "In progress.") {
		t.Errorf("an operation whose last try failed counts as under way:\n%s", body)
	}
	page("polled", w.Path(polled), `<p class="going">In progress.</p>`)

	hook := "/console/webhooks/" + w.Namespace + "/refuse"
	page("outcomes of a Webhook", hook, "<b>0 %</b> succeeded: 0 of 1 that ended", "webhook=refuse", "answered 400")
	page("outcomes in the list", "/console/webhooks", hook, "0 % succeeded")
	for _, path := range []string{"/console/webhooks/" + w.Namespace + "/nothing", "/console/webhooks/A_B/x"} {
		if got := w.Get("", path); got.Status != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.Status)
		}
	}
}
