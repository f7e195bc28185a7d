package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/pages"
)

// overviewData is the data of the first page.
type overviewData struct {
	Status     inspect.Runtime
	Tiles      []pages.Tile
	Breakdowns []pages.Breakdown
	Plots      []plot
}

// overview is the first page.
type overview struct {
	status   func() inspect.Runtime
	fibers   func() int
	rates    *rates
	sections []*pages.Contents
}

func (p *overview) page() pages.Page {
	return pages.Page{Name: "overview", Title: "Overview", Menu: true, Data: p.data}
}

func (p *overview) data(ctx context.Context, rd *pages.Reader, _ *http.Request) (any, error) {
	s := p.status()
	d := overviewData{Status: s}
	for _, section := range p.sections {
		if o := section.Overview; o != nil && o.Scope.May(ctx, rd, "") == nil {
			tiles, breakdowns, err := o.Data(ctx)
			if err != nil {
				return nil, err
			}
			d.Tiles, d.Breakdowns = append(d.Tiles, tiles...), append(d.Breakdowns, breakdowns...)
		}
		for _, of := range section.Plots {
			d.Plots = append(d.Plots, p.plot(of))
		}
	}
	d.Tiles = append(d.Tiles, tilesOf(s)...)
	d.Tiles = append(d.Tiles, pages.Tile{
		ID: "flows", Title: "Fibers", Path: "/console/flows", Value: p.fibers(), Text: "live and parked",
	})
	if len(s.Controllers) > 0 {
		d.Plots = append(d.Plots,
			p.plot(pages.Plot{Title: "Reconciliations", Unit: "per second", Of: reconciled}),
			p.plot(pages.Plot{
				Title: "Time of a reconciliation", Unit: "seconds, mean", Of: reconciledSeconds,
				By: reconciledCount,
			}))
	}
	d.Plots = append(d.Plots,
		p.plot(pages.Plot{Title: "Requests to the API server", Unit: "per second", Of: requests}),
		p.plot(pages.Plot{Title: "Time of a request", Unit: "seconds, mean", Of: requestSeconds, By: requestCount}))
	return d, nil
}

func (p *overview) plot(of pages.Plot) plot {
	return plotOf(of.Title, of.Unit, p.rates.ratio(of.Of, of.By))
}

// tilesOf returns the numbers of sources and controllers.
func tilesOf(s inspect.Runtime) []pages.Tile {
	var stalest time.Duration
	for _, src := range s.Sources {
		for _, st := range src.Status {
			if src.Running {
				stalest = max(stalest, st.Staleness)
			}
		}
	}
	tiles := []pages.Tile{{
		ID: "sources", Title: "Sources", Path: "/console/sources", Value: len(s.Sources),
		Text: "oldest state: " + pages.Human(stalest),
	}}
	if len(s.Controllers) == 0 {
		return tiles
	}
	queued, running, failing := 0, 0, 0
	for _, c := range s.Controllers {
		queued, running, failing = queued+c.Ready, running+c.Running, failing+c.Failed
	}
	all := pages.Tile{
		ID: "controllers", Title: "Controllers", Path: "/console/controllers", Value: len(s.Controllers),
		Text: pages.Count(queued) + " queued, " + pages.Count(running) + " running, " + pages.Count(failing) + " failing",
	}
	if failing > 0 {
		all.Level = "warn"
	}
	return append(tiles, all)
}

// The plotted counters.
const (
	reconciled = "fairlead_reconcile_total"
	requests   = "fairlead_call_requests_total"

	reconciledFamily = "fairlead_reconcile_duration_seconds"
	requestFamily    = "fairlead_call_request_duration_seconds"

	sumSuffix, countSuffix = "_sum", "_count"

	reconciledSeconds, reconciledCount = reconciledFamily + sumSuffix, reconciledFamily + countSuffix
	requestSeconds, requestCount       = requestFamily + sumSuffix, requestFamily + countSuffix
)

// sampleOf reads the counters.
func sampleOf(metrics prometheus.Gatherer) map[string]float64 {
	counts := map[string]float64{}
	families, err := metrics.Gather()
	if err != nil && len(families) == 0 {
		return counts
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "fairlead_") {
			continue
		}
		for _, m := range f.GetMetric() {
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				counts[f.GetName()] += m.GetCounter().GetValue()
			case dto.MetricType_HISTOGRAM:
				counts[f.GetName()+sumSuffix] += m.GetHistogram().GetSampleSum()
				counts[f.GetName()+countSuffix] += float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return counts
}
