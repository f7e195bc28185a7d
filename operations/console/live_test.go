package console_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/operations"
)

// TestLive: an open page receives its new contents after a change.
func TestLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	w.Webhook("job")
	op := w.Schedule("first", "job")
	r, err := http.NewRequestWithContext(w.Ctx, http.MethodGet,
		w.Server.URL+"/console/live/operations?namespace="+w.Namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.Browser().Do(r)
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
	w.Schedule("second", "job")
	next("App/second")
	if _, err := w.Scheduler.Cancel(w.Ctx, operations.Resource{Type: "App", ID: "first"}, op.EffectiveID()); err != nil {
		t.Fatal(err)
	}
	next("failed")
}

// TestTries: the page of an operation shows each attempt with its status.
func TestTries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	w.Webhook("fail")
	op := w.Schedule("again", "fail")
	w.Eventually("two tries", func() bool {
		body := w.Get("", w.Path(op)).Body
		return strings.Count(body, "attempt, HTTP 500: to be retried") >= 2 &&
			strings.Count(body, `<td data-name="Result">to be retried</td>`) >= 2 && !strings.Contains(body, "There were more")
	})
}
