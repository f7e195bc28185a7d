package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/httpapi"
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
	Partly     string // the part that is shown, if not all
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

func listOperations(namespace string) httpapi.Access {
	return httpapi.OperationAccess("list", namespace)
}

// listable checks the right to see the operations of a namespace. An empty name means all namespaces.
func (c *console) listable(ctx context.Context, rd *reader, namespace string) error {
	return rd.may(ctx, listOperations(namespace))
}

// mayIn checks the right to a list: in the requested namespace, or in all served namespaces.
func (c *console) mayIn(access func(namespace string) httpapi.Access) func(context.Context, *reader, *http.Request) error {
	return func(ctx context.Context, rd *reader, r *http.Request) error {
		if namespace := r.URL.Query().Get("namespace"); namespace != "" {
			if !c.serves(namespace) {
				return errNothing
			}
			return rd.may(ctx, access(namespace))
		}
		err := c.everywhere(ctx, rd, access)
		if refused(err) && !unknown(err) {
			return errWhich
		}
		return err
	}
}

// errWhich is for readers who may not see all namespaces.
var errWhich = errors.New("you may not see all namespaces: name one")

// serves reports whether the operations of a namespace are served.
func (c *console) serves(namespace string) bool {
	return len(validation.IsDNS1123Label(namespace)) == 0 &&
		(len(c.Operations.Namespaces) == 0 || slices.Contains(c.Operations.Namespaces, namespace))
}

// filterParameters are the query parameters of a filter.
var filterParameters = []string{"namespace", "status", "type", "category", "resource", "webhook", "cause", "q", "age"}

// filterOf parses the filter of a request, and returns its parameters. It refuses invalid parameters, and parameters
// that are not in ofPage. Ignoring them would select more operations than the reader intends, and a page can cancel all
// of them.
func filterOf(r *http.Request, now time.Time, ofPage ...string) (filter, url.Values, error) {
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
			return filter{}, nil, badFilter(fmt.Sprintf("%.60q is unknown; known are %s", name, strings.Join(filterParameters, ", ")))
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
	return &httpapi.Problem{Status: http.StatusBadRequest, Title: "Bad filter", Detail: detail}
}

func (c *console) operations(ctx context.Context, rd *reader, r *http.Request) (any, error) {
	if err := c.index.look(ctx); err != nil {
		return nil, err
	}
	now := c.now()
	f, q, err := filterOf(r, now, "from")
	if err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("from"))
	from = max(0, from)
	p := c.index.page(f, from, pageSize, now)
	if len(p.rows) == 0 && p.total > 0 { // from is beyond the end: show the last page
		from = (p.total - 1) / pageSize * pageSize
		p = c.index.page(f, from, pageSize, now)
	}
	d := operationsData{
		Query: q, Rows: p.shown(), Total: p.total, All: p.all, From: min(p.total, from+1), To: from + len(p.rows),
		Partly: c.partly(),
	}
	mayUpdate := c.everywhere(ctx, rd, updateOperations)
	if f.namespace != "" {
		mayUpdate = rd.may(ctx, updateOperations(f.namespace))
	}
	for _, verb := range bulkVerbs {
		if n := p.open[verb]; n > 0 && allowed(mayUpdate) {
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
	if p.more {
		d.Older = at("from", strconv.Itoa(from+pageSize))
	}
	if p.newer {
		d.Newer = at("from", cmp.Or(strconv.Itoa(max(0, from-pageSize)), "0"))
	}
	for _, t := range []tab{
		{Title: "All", Path: "", Count: p.all},
		{Title: "In progress", Path: string(operations.InProgress), Count: p.counts[string(operations.InProgress)]},
		{Title: "Stuck", Path: statusStuck, Count: p.counts[statusStuck]},
		{Title: "Failed", Path: string(operations.Failed), Count: p.counts[string(operations.Failed)]},
		{Title: "Succeeded", Path: string(operations.Succeeded), Count: p.counts[string(operations.Succeeded)]},
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

// partly says which part of the operations this process has, or "" for all.
func (c *console) partly() string {
	held, ok := c.Operations.Operations.Held()
	if !ok || held.Len() == held.Layout().Len() {
		return ""
	}
	return "This replica has " + strconv.Itoa(held.Len()) + " of " + strconv.Itoa(held.Layout().Len()) +
		" slots; operations of the others are on the pages of the other replicas."
}

// Methods for templates.

func (r *row) Path() string {
	return "/console/operations/" + url.PathEscape(r.key.Namespace) + "/" + url.PathEscape(r.key.Name)
}
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
func (r *row) Took() string        { return human(r.finished.Sub(r.created)) }

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
