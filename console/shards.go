package console

import (
	"context"
	"net/http"
	"time"

	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

type shardsData struct {
	*group.Report
	Members []memberRow
	Unheld  int
}

type memberRow struct {
	group.MemberReport
	Range    string
	Fraction int
	Silent   bool
}

// silentAfter is the age of a member's Lease from which the page marks the member.
const silentAfter = 10 * time.Second

// shards is the page of the replicas that share the objects.
type shards struct {
	report func(ctx context.Context) (*group.Report, error)
	recent pages.Recent[shardsAnswer]
}

type shardsAnswer struct {
	report *group.Report
	err    error
}

func (p *shards) page() pages.Page {
	return pages.Page{Name: "shards", Title: "Shards", Menu: true, Data: p.data}
}

func (p *shards) data(ctx context.Context, _ *pages.Reader, _ *http.Request) (any, error) {
	got := p.recent.Get(func() shardsAnswer {
		report, err := p.report(ctx)
		return shardsAnswer{report, err}
	})
	if got.err != nil {
		return nil, got.err
	}
	d := shardsData{Report: got.report, Unheld: got.report.Of}
	layout := shard.Layout{Slots: got.report.Of}
	for _, m := range got.report.Members {
		row := memberRow{MemberReport: m, Range: "none", Silent: time.Since(m.Renewed) > silentAfter}
		if layout.Check() == nil && len(m.Slots) > 0 {
			row.Range, row.Fraction = layout.Set(m.Slots...).String(), 100*len(m.Slots)/got.report.Of
		}
		d.Unheld -= len(m.Slots)
		d.Members = append(d.Members, row)
	}
	return d, nil
}
