package console

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/pages"
)

// TestBlockedWorkers: the pages show a controller or an engine as blocked, and the program as not healthy, after
// minutes without a returning worker.
func TestBlockedWorkers(t *testing.T) {
	t.Parallel()
	render := renderOf(t)
	since := time.Now().Add(-7 * time.Minute)
	for name, tc := range map[string]struct {
		reason      string
		blocked     *time.Time
		has, hasNot []string
	}{
		"overview": {
			reason: "Its workers do not return.", blocked: &since, hasNot: []string{"✓"},
			has: []string{
				"not healthy", "controller east maps is blocked", "engine of flows is blocked",
				`href="/console/flows">Flows</a> lists`,
			},
		},
		"controllers": {
			reason: "Its state alone would say ✓.", blocked: &since, has: []string{"✕", "blocked"},
			hasNot: []string{"✓"},
		},
		"flows": {
			reason: "No worker of the engine returns.", blocked: &since,
			has: []string{"✕", "engine of flows is blocked"},
		},
	} {
		for _, at := range []*time.Time{tc.blocked, nil} {
			status := inspect.Runtime{Controllers: []inspect.Controller{
				{Cluster: "east", Name: "maps", State: inspect.StateRunning, Counts: inspect.Counts{Running: 1}, BlockedSince: at},
			}, FlowsBlockedSince: at}
			var data any
			var err error
			switch now := func() inspect.Runtime { return status }; name {
			case "overview":
				data, err = (&overview{status: now, fibers: func() int { return 0 }, rates: newRates(nil)}).data(t.Context(), nil,
					nil)
			case "flows":
				data, err = (&flows{}).all(t.Context(), nil, nil)
			default:
				data, err = (&controllers{status: now}).data(t.Context(), nil, nil)
			}
			var shown strings.Builder
			if err == nil {
				err = render.Part(&shown, name, "content", pages.View{Data: data, Health: healthOf(status, nil)})
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, has := range tc.has {
				if strings.Contains(shown.String(), has) != (at != nil) {
					t.Errorf("%s, blocked %v: %s Is %q there?\n%s", name, at, tc.reason, has, shown.String())
				}
			}
			for _, not := range tc.hasNot {
				if strings.Contains(shown.String(), not) != (at == nil) {
					t.Errorf("%s, blocked %v: %s Is %q there?\n%s", name, at, tc.reason, not, shown.String())
				}
			}
		}
	}
}

// renderOf returns the Render of the library's pages.
func renderOf(t *testing.T) *pages.Render {
	t.Helper()
	render, err := newRender(Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return render
}
