package console

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/inspect"
)

// TestBlockedWorkers: a controller or an engine whose workers have been at the same objects or steps for minutes is
// shown as blocked, and the program as not healthy.
func TestBlockedWorkers(t *testing.T) {
	t.Parallel()
	pages, err := parsePages()
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(-7 * time.Minute)
	for name, tc := range map[string]struct {
		reason      string
		blocked     *time.Time
		has, hasNot []string
	}{
		"overview": {
			reason: "Its workers do not return.", blocked: &since, hasNot: []string{"✓"},
			has: []string{
				"not healthy", "controller east maps is blocked", "engine of flows is blocked", `href="/console/flows">Flows</a> names`,
			},
		},
		"controllers": {reason: "Its state alone would say ✓.", blocked: &since, has: []string{"✕", "blocked"}, hasNot: []string{"✓"}},
		"flows":       {reason: "No worker of the engine returns.", blocked: &since, has: []string{"✕", "engine of flows is blocked"}},
	} {
		for _, at := range []*time.Time{tc.blocked, nil} {
			status := inspect.Runtime{Controllers: []inspect.Controller{
				{Cluster: "east", Name: "maps", State: inspect.StateRunning, Counts: inspect.Counts{Running: 1}, BlockedSince: at},
			}, FlowsBlockedSince: at}
			later := time.Now().Add(time.Hour)
			c := &console{rates: newRates(nil), shown: &sharedAnswers{entries: map[string]*cached{
				"status": {at: later, value: status}, "fibers": {at: later, value: fiberCounts{}},
			}}}
			var data any
			switch name {
			case "overview":
				data, err = c.overview(t.Context(), nil, nil)
			case "flows":
				data, err = c.flows(t.Context(), nil, nil)
			default:
				data, err = c.controllers(t.Context(), &reader{c: c}, nil)
			}
			var shown strings.Builder
			if err == nil {
				err = pages[name].ExecuteTemplate(&shown, "content", page{Data: data, Health: c.health()})
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
