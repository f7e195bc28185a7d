package source_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
)

// lines keeps the errors of log messages that contain a text.
type lines struct {
	slog.Handler
	text string
	mu   *sync.Mutex
	got  *[]string
}

func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l lines) Enabled(context.Context, slog.Level) bool { return true }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	if !strings.Contains(r.Message, l.text) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			*l.got = append(*l.got, a.Value.String())
		}
		return true
	})
	return nil
}

// A watch without initial events is logged once for each condition, and again after initial events have worked in
// between.
func TestFallBackIsLoggedOncePerCondition(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	forbidden, broken := status(403, "Forbidden", "no right"), status(500, "InternalError", "boom")
	expired := watchThenEnd(event("ERROR", statusBody(410, "Expired", "too old")))
	s := serve(t, []reply{forbidden}, []reply{
		forbidden, forbidden, forbidden, broken, broken, watchThenEnd(initialEnd(5)), expired, broken, broken, forbidden,
		watch(initialEnd(20)),
	})
	l := lines{Handler: slog.DiscardHandler, text: "initial events", mu: &sync.Mutex{}, got: &[]string{}}
	s.run(r, func(cfg *source.Config) { cfg.NoWatchList, cfg.Logger = false, slog.New(l) })
	r.wait("the second list", func() bool { return r.version == "20" })
	l.mu.Lock()
	defer l.mu.Unlock()
	want := []string{"no right", "boom", "boom", "no right"}
	if len(*l.got) != len(want) {
		t.Fatalf("logged %d times, want %d: %q", len(*l.got), len(want), *l.got)
	}
	for i, w := range want {
		if !strings.Contains((*l.got)[i], w) {
			t.Errorf("line %d is %q, want %q", i, (*l.got)[i], w)
		}
	}
}
