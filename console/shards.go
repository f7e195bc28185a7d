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

// Objects returns the load, which is known.
func (r memberRow) Objects() int { return *r.Load }

// silentAfter is the age of a member's Lease from which the page marks the member.
const silentAfter = 10 * time.Second

// shards is the page of the replicas that share the objects, and its JSON.
type shards struct {
	report func(ctx context.Context) (*group.Report, error)
	recent pages.Recent[shardsAnswer]
}

type shardsAnswer struct {
	report *group.Report
	err    error
}

func (p *shards) page() pages.Page {
	return pages.Page{Name: shardsPage, Title: "Shards", Menu: true, AllReplicas: true, Data: p.data}
}

// shardsPage is the name of the page.
const shardsPage = "shards"

// api answers GET /api/shards with the report, for readers who may see the page.
func (p *shards) api(ctx context.Context, rd *pages.Reader, _ *http.Request) (any, error) {
	if err := rd.MayRun(ctx, shardsPage); err != nil {
		return nil, err
	}
	return p.read(ctx)
}

// read returns a report that is at most a second old.
func (p *shards) read(ctx context.Context) (*group.Report, error) {
	got := p.recent.Get(func() shardsAnswer {
		report, err := p.report(ctx)
		return shardsAnswer{report, err}
	})
	return got.report, got.err
}

func (p *shards) data(ctx context.Context, _ *pages.Reader, _ *http.Request) (any, error) {
	report, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	d := shardsData{Report: report, Unheld: report.Of}
	layout := shard.Layout{Slots: report.Of}
	for _, m := range report.Members {
		row := memberRow{MemberReport: m, Range: "none", Silent: time.Since(m.Renewed) > silentAfter}
		if layout.Check() == nil && len(m.Slots) > 0 {
			row.Range, row.Fraction = layout.Set(m.Slots...).String(), 100*len(m.Slots)/report.Of
		}
		d.Unheld -= len(m.Slots)
		d.Members = append(d.Members, row)
	}
	return d, nil
}
