package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestFilterThatCannotBeUsed: the console refuses an invalid filter. Otherwise it would select all operations, which a
// bulk change could cancel.
func TestFilterThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	op := w.Schedule("one", "job")
	browser := w.Browser()
	row := w.Path(op)
	list := func(query string) (status int, body string) {
		a := w.Send(browser, "", http.MethodGet, "/console/operations?"+query, nil)
		return a.Status, a.Body
	}
	w.Eventually("the row", func() bool { _, body := list(""); return strings.Contains(body, row) })
	for query, want := range map[string]string{
		"q=" + strings.Repeat("x", 513):             "q is longer than 512 bytes",
		"age=yesterday":                             "age must be a duration",
		"categroy=clean":                            "is unknown; known are namespace, status, type, category",
		"category=clean&category=tests":             "category is given more than once",
		"category=%zz":                              "the query string is malformed",
		"from=50&cause=" + strings.Repeat("y", 600): "cause is longer than 512 bytes",
	} {
		status, body := list(query)
		if status != http.StatusBadRequest || !strings.Contains(body, want) || strings.Contains(body, row) {
			t.Errorf("%.40s: %d %s", query, status, body)
		}
		path := "/console/bulk?verb=cancel&" + strings.TrimPrefix(query, "from=50&")
		if a := w.Send(browser, "", http.MethodGet, path, nil); a.Status != http.StatusBadRequest ||
			!strings.Contains(a.Body, want) {
			t.Errorf("%.60s: %d %s", path, a.Status, a.Body)
		}
		form := url.Values{"count": {"10"}, "csrf": {w.CSRF(browser, "/console/bulk?verb=cancel")}}
		if a := w.Send(browser, "", http.MethodPost, path, form); a.Status != http.StatusBadRequest {
			t.Errorf("%.60s is done: %d %s", path, a.Status, a.Body)
		}
	}
	// A correlation id has at most 255 bytes. The page of an operation links to those of the same request.
	if status, body := list("from=0&q=" + strings.Repeat("x", 255)); status != http.StatusOK ||
		strings.Contains(body, row) {
		t.Errorf("with a long correlation id: %d %s", status, body)
	}
}
