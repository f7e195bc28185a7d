package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/pages"
)

// TestPlot: a plot has axes with a scale, tooltips with its values, and a table and a label for screen readers.
func TestPlot(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var points []point
	for i := range int(rateFor / rateEvery) {
		points = append(points, point{end.Add(-time.Duration(int(rateFor/rateEvery)-1-i) * rateEvery), float64(i % 38)})
	}
	p := plotOf("Requests", "per second", points)
	round := cmpopts.EquateApprox(0, 0.01)
	if d := cmp.Diff([]axisMark{{80, "0"}, {44, "25"}, {8, "50"}}, p.Rows, round); d != "" {
		t.Errorf("scale: %s", d)
	}
	if d := cmp.Diff([]axisMark{{44, "-60m"}, {177, "-30m"}, {310, "now"}}, p.Columns, round); d != "" {
		t.Errorf("time: %s", d)
	}
	if len(p.Spots) != plotSpots || p.Spots[0].Text != "12:00:00 UTC: 5.00 per second" || p.Least != "0" ||
		p.Most != "37" {
		t.Errorf("%d spots, %+v; %s to %s", len(p.Spots), p.Spots[0], p.Least, p.Most)
	}
	for _, s := range p.Spots {
		if s.X < plotLeft-0.01 || s.X+s.Wide > plotLeft+plotWide+s.Wide {
			t.Errorf("a tooltip is outside of the plot: %+v", s)
		}
	}
	for most, top := range map[float64]float64{0: 1, 0.03: 0.05, 1: 1, 1.1: 2, 37: 50, 60: 100, 1e6: 1e6} {
		if got := scaleOf(most); fmt.Sprint(float32(got)) != fmt.Sprint(float32(top)) {
			t.Errorf("the axis for %v ends at %v, want %v", most, got, top)
		}
	}
	var text strings.Builder
	if err := renderOf(t).Part(&text, "overview", "content", pages.View{
		Health: &pages.Health{}, Data: overviewData{
			Status: inspect.Runtime{},
			Plots:  []plot{p, plotOf("Nothing", "per second", nil)},
		},
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`aria-label="Requests, per second, in the last hour: now 5.00, at least 0, at most 37"`, ">25</text>", ">-30m</text>",
		"<title>12:00:00 UTC: 5.00 per second</title>", "<td data-name=\"Time\">12:00:00</td>", "no values yet",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in\n%s", want, text.String())
		}
	}
}
