package console_test

import (
	"strings"
	"testing"
)

// TestLongID: a long id is cut in its middle, which leaves room for the reason. The title has the complete id.
func TestLongID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noAuth)
	id := "begins-" + strings.Repeat("0123456789", 15) + "-ends"
	op := w.Schedule(id, "no-such-webhook")
	var page string
	w.Eventually("the reason", func() bool {
		page = w.Get("", "/console/operations").Body
		return strings.Contains(page, "begins-") && strings.Contains(page, "no-such-webhook")
	})
	for path, page := range map[string]string{"the list": page, "the operation": w.Get("", w.Path(op)).Body} {
		_, link, _ := strings.Cut(page, `title="App/`+id+`"`)
		text, _, _ := strings.Cut(strings.ReplaceAll(link, " <", "<"), "<")
		if _, text, _ = strings.Cut(text, ">"); !strings.HasPrefix(text, "App/begins-") || !strings.Contains(text, "…") ||
			!strings.Contains(text, "-ends") || len(text) > 120 {
			t.Errorf("%s shows %q", path, text)
		}
	}
}
