package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

const (
	pageSize = 50
	// maxQuery bounds a filter parameter in bytes. No field of an Operation that a filter compares is longer.
	maxQuery = 512
)

// operationsData is the data of the list of operations.
type operationsData struct {
	Query      url.Values
	Rows       []shownRow
	Total, All int
	From, To   int
	Older      string
	Newer      string
	Tabs       []tab
	Namespaces []string
	Ages       []choice
	Bulks      []bulkLink
}

type tab struct {
	Title, Path string
	Count       int
	Here        bool
}

type choice struct {
	Value, Title string
	Here         bool
}

// ages are the options of the filter by age.
var ages = []choice{
	{Value: "", Title: "any"},
	{Value: "15m", Title: "last 15 minutes"},
	{Value: "1h", Title: "last hour"},
	{Value: "24h", Title: "last day"},
	{Value: "168h", Title: "last week"},
	{Value: "-15m", Title: "over 15 minutes"},
	{Value: "-1h", Title: "over an hour"},
	{Value: "-24h", Title: "over a day"},
}

// filterParameters are the query parameters of a filter.
var filterParameters = []string{"namespace", "status", "type", "category", "resource", "webhook", "cause", "q", "age"}

// filterOf parses the filter of a request, and returns its parameters. It refuses invalid parameters, and parameters
// that are not in ofPage. Ignoring them would select more operations than the reader intends, and a page can cancel all
// of them.
func filterOf(r *http.Request, ofPage ...string) (filter, url.Values, error) {
	asked, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return filter{}, nil, badFilter("the query string is malformed")
	}
	q := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		v := strings.TrimSpace(asked.Get(name))
		switch {
		case slices.Contains(ofPage, name):
			continue
		case !slices.Contains(filterParameters, name):
			return filter{}, nil, badFilter(fmt.Sprintf("%.60q is unknown; known are %s", name,
				strings.Join(filterParameters, ", ")))
		case len(asked[name]) > 1:
			return filter{}, nil, badFilter(name + " is given more than once")
		case len(v) > maxQuery:
			return filter{}, nil, badFilter(fmt.Sprintf("%s is longer than %d bytes", name, maxQuery))
		case v != "":
			q.Set(name, v)
		}
	}
	f := filter{
		namespace: q.Get("namespace"), status: q.Get("status"), opType: q.Get("type"), category: q.Get("category"),
		resourceType: q.Get("resource"), webhook: q.Get("webhook"), cause: q.Get("cause"), text: strings.ToLower(q.Get("q")),
	}
	if text := q.Get("age"); text != "" {
		now := time.Now()
		switch age, err := time.ParseDuration(text); {
		case err != nil:
			return filter{}, nil, badFilter("age must be a duration, such as 15m or -1h")
		case age > 0:
			f.oldest = now.Add(-age)
		case age < 0:
			f.youngest = now.Add(age)
		}
	}
	return f, q, nil
}

func badFilter(detail string) error {
	return &access.Problem{Status: http.StatusBadRequest, Title: "Bad filter", Detail: detail}
}

// operationsPage is the list of operations.
type operationsPage struct {
	index          *index
	lists, updates *pages.Scope
}

func (p *operationsPage) page() pages.Page {
	return pages.Page{
		Name: "operations", Title: "Operations", Menu: true, Scope: p.lists, Data: p.data, State: p.index.changes,
		Shows: shows(v1alpha1.KindOperation),
	}
}

func (p *operationsPage) data(ctx context.Context, rd *pages.Reader, r *http.Request) (any, error) {
	if err := p.index.wait(ctx); err != nil {
		return nil, err
	}
	f, q, err := filterOf(r, "from")
	if err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("from"))
	from = max(0, from)
	part := p.index.page(f, from, pageSize)
	if len(part.rows) == 0 && part.total > 0 { // from is beyond the end: show the last page
		from = (part.total - 1) / pageSize * pageSize
		part = p.index.page(f, from, pageSize)
	}
	d := operationsData{
		Query: q, Rows: part.shown(), Total: part.total, All: part.all, From: min(part.total, from+1),
		To: from + len(part.rows),
	}
	mayUpdate := pages.Allowed(p.updates.May(ctx, rd, f.namespace))
	for _, verb := range bulkVerbs {
		if n := part.open[verb]; n > 0 && mayUpdate {
			d.Bulks = append(d.Bulks, bulkLink{verb, n, bulkPath(verb, q)})
		}
	}
	at := func(change ...string) string {
		to := url.Values{}
		for name, values := range q {
			to[name] = values
		}
		for i := 0; i < len(change); i += 2 {
			if change[i+1] == "" {
				to.Del(change[i])
			} else {
				to.Set(change[i], change[i+1])
			}
		}
		if len(to) == 0 {
			return "/console/operations"
		}
		return "/console/operations?" + to.Encode()
	}
	if part.more {
		d.Older = at("from", strconv.Itoa(from+pageSize))
	}
	if part.newer {
		d.Newer = at("from", cmp.Or(strconv.Itoa(max(0, from-pageSize)), "0"))
	}
	for _, t := range []tab{
		{Title: "All", Path: "", Count: part.all},
		{Title: "In progress", Path: string(operations.InProgress), Count: part.counts[string(operations.InProgress)]},
		{Title: "Stuck", Path: statusStuck, Count: part.counts[statusStuck]},
		{Title: "Failed", Path: string(operations.Failed), Count: part.counts[string(operations.Failed)]},
		{Title: "Succeeded", Path: string(operations.Succeeded), Count: part.counts[string(operations.Succeeded)]},
	} {
		t.Here, t.Path = t.Path == f.status, at("status", t.Path, "cause", "")
		d.Tabs = append(d.Tabs, t)
	}
	for _, a := range ages {
		a.Here = a.Value == q.Get("age")
		d.Ages = append(d.Ages, a)
	}
	return d, nil
}

// Methods for templates.

func (r *row) Path() string        { return operationPath(r.key) }
func (r *row) Namespace() string   { return r.key.Namespace }
func (r *row) ID() string          { return r.id }
func (r *row) Key() string         { return r.key.Namespace + "/" + r.key.Name }
func (r *row) Resource() string    { return r.resource.Type + "/" + r.resource.ID }
func (r *row) Type() string        { return string(r.opType) }
func (r *row) Category() string    { return r.category }
func (r *row) Correlation() string { return r.correlation }
func (r *row) Status() string      { return string(r.status) }
func (r *row) Created() time.Time  { return r.created }
func (r *row) Finished() time.Time { return r.finished }
func (r *row) Tries() int32        { return r.tries }
func (r *row) Canceled() bool      { return r.canceled && r.status == operations.InProgress }
func (r *row) Done() int           { return r.done }
func (r *row) Total() int          { return r.total }
func (r *row) Took() string        { return pages.Human(r.finished.Sub(r.created)) }

// Note returns the reason why the operation waits, or its error with the reason of the failure.
func (r *row) Note() string {
	if r.reason != "" && r.err != "" && r.err != r.reason {
		return r.reason + ": " + r.err
	}
	return cmp.Or(r.waiting, r.err, r.reason)
}

// shownRow is a row with the first cause for which its operation is stuck, or "".
type shownRow struct {
	*row
	Cause why.Type
}

func (p *part) shown() (all []shownRow) {
	for _, r := range p.rows {
		all = append(all, shownRow{r, p.causes[r]})
	}
	return all
}
