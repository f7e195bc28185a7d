package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/why"
)

// status returns the state of the runtime, shared by all pages for a moment.
func (c *console) status() inspect.Runtime {
	return shared(c.shown, "status", func() inspect.Runtime { return c.Runtime.Status(maxFailures) })
}

// overviewData is the data of the first page.
type overviewData struct {
	Status      inspect.Runtime
	Operations  *operationCounts // nil: there are none, or the reader may not list them
	Stuck       []stuckGroup
	Sources     int
	Stalest     time.Duration
	Queued      int
	Running     int
	Failing     int
	Fibers      int
	Plots       []plot
	Controllers int
}

type operationCounts struct{ InProgress, Stuck, Failed, Succeeded int }

func (c *console) overview(ctx context.Context, rd *reader, _ *http.Request) (any, error) {
	s := c.status()
	d := overviewData{Status: s, Sources: len(s.Sources), Controllers: len(s.Controllers)}
	for _, src := range s.Sources {
		for _, st := range src.Status {
			if src.Running {
				d.Stalest = max(d.Stalest, st.Staleness)
			}
		}
	}
	for _, ctl := range s.Controllers {
		d.Queued, d.Running, d.Failing = d.Queued+ctl.Ready, d.Running+ctl.Running, d.Failing+ctl.Failed
	}
	d.Fibers = c.fibers().total
	if c.Operations != nil {
		ok := true
		for _, namespace := range c.served() {
			ok = ok && c.listable(ctx, rd, namespace) == nil
		}
		if ok {
			if err := c.index.look(ctx); err != nil {
				return nil, err
			}
			p := c.index.page(filter{}, 0, 0, c.now())
			d.Operations = &operationCounts{
				p.counts[string(operations.InProgress)], p.counts[statusStuck], p.counts[string(operations.Failed)],
				p.counts[string(operations.Succeeded)],
			}
			d.Stuck = groupsOf(p.stuck)
		}
		d.Plots = append(d.Plots,
			plotOf("Operations that ended", "per second", c.rates.perSecond(finished)),
			plotOf("Time of an operation", "seconds, mean", c.rates.ratio(finishedSeconds, finishedCount)))
	}
	if len(s.Controllers) > 0 {
		d.Plots = append(d.Plots,
			plotOf("Reconciliations", "per second", c.rates.perSecond(reconciled)),
			plotOf("Time of a reconciliation", "seconds, mean", c.rates.ratio(reconciledSeconds, reconciledCount)))
	}
	d.Plots = append(d.Plots,
		plotOf("Requests to the API server", "per second", c.rates.perSecond(requests)),
		plotOf("Time of a request", "seconds, mean", c.rates.ratio(requestSeconds, requestCount)))
	return d, nil
}

// stuckGroup counts the operations that are stuck for one cause.
type stuckGroup struct {
	Cause why.Type
	Count int
}

// groupsOf returns the groups, largest first.
func groupsOf(counts map[why.Type]int) (all []stuckGroup) {
	for cause, n := range counts {
		all = append(all, stuckGroup{cause, n})
	}
	slices.SortFunc(all, func(a, b stuckGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Cause, b.Cause))
	})
	return all
}

// Path returns the list of the group's operations.
func (g stuckGroup) Path() string {
	return "/console/operations?" + url.Values{"status": {statusStuck}, "cause": {string(g.Cause)}}.Encode()
}

// Text describes the common cause of the group.
func (g stuckGroup) Text() string {
	wait := "operations wait "
	if g.Count == 1 {
		wait = "operation waits "
	}
	object := map[why.Type]string{
		why.LockHeld: "for the end of another operation, because of a lock", why.WebhookMissing: "for Webhook missing",
		why.NotReleased: "for credentials that are not released", why.Quarantined: "for a Webhook that is quarantined",
		why.CircuitOpen: "for a circuit that is open", why.RateLimited: "for a limit on calls or writes",
		why.RetryAfter: "for longer than the receiver has asked for", why.Forbidden: "for a missing right",
		why.Conflict: "behind conflicting writes", why.BackOff: "to try again after an error",
		why.SourceStale: "for the watch to catch up", why.DeadlinePassed: "for their end, past the deadline",
	}[g.Cause]
	return wait + cmp.Or(object, "for longer than declared")
}

// The plotted counters.
const (
	finished   = "fairlead_operations_finished_total"
	reconciled = "fairlead_reconcile_total"
	requests   = "fairlead_call_requests_total"

	finishedFamily   = "fairlead_operation_duration_seconds"
	reconciledFamily = "fairlead_reconcile_duration_seconds"
	requestFamily    = "fairlead_call_request_duration_seconds"

	sumSuffix, countSuffix = "_sum", "_count"

	finishedSeconds, finishedCount     = finishedFamily + sumSuffix, finishedFamily + countSuffix
	reconciledSeconds, reconciledCount = reconciledFamily + sumSuffix, reconciledFamily + countSuffix
	requestSeconds, requestCount       = requestFamily + sumSuffix, requestFamily + countSuffix
)

// sample reads the counters.
func (c *console) sample() map[string]float64 {
	counts := map[string]float64{}
	families, err := c.Runtime.Registry().Gather()
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
