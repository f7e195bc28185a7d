package console

import (
	"context"
	"net/http"
	"time"

	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

type shardsData struct {
	*group.Report
	Members []memberRow
	Nobody  int
}

type memberRow struct {
	group.MemberReport
	Range    string
	Fraction int
	Silent   bool
}

// silentAfter is the age of a member's Lease from which the page marks the member.
const silentAfter = 10 * time.Second

func (c *console) shards(ctx context.Context, _ *reader, _ *http.Request) (any, error) {
	type answer struct {
		report *group.Report
		err    error
	}
	got := shared(c.shown, "shards", func() answer {
		report, err := c.Shards(ctx)
		return answer{report, err}
	})
	if got.err != nil {
		return nil, got.err
	}
	d := shardsData{Report: got.report, Nobody: got.report.Of}
	layout := shard.Layout{Slots: got.report.Of}
	for _, m := range got.report.Members {
		row := memberRow{MemberReport: m, Range: "none", Silent: c.now().Sub(m.Renewed) > silentAfter}
		if layout.Check() == nil && len(m.Slots) > 0 {
			row.Range, row.Fraction = layout.Set(m.Slots...).String(), 100*len(m.Slots)/got.report.Of
		}
		d.Nobody -= len(m.Slots)
		d.Members = append(d.Members, row)
	}
	return d, nil
}
