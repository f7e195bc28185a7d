package console

import (
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/pages"
)

const (
	// bulkEvery is the interval between two bulk changes of operations, for all readers of this process together.
	bulkEvery = 20 * time.Millisecond
	// maxBulks bounds the concurrent bulk changes.
	maxBulks = 8
	// bulkReport is the interval between progress updates.
	bulkReport = time.Second
	// maxBulkFailed bounds the failed operations that a page names.
	maxBulkFailed = 1000
)

// bulkVerbs are the verbs that can be applied to the result of a filter.
var bulkVerbs = []string{verbRetry, verbCancel}

// pace limits the rate of bulk changes. It is safe for concurrent use.
type pace struct {
	mu   sync.Mutex
	next time.Time
}

// wait waits for the next turn.
func (p *pace) wait(ctx context.Context) error {
	p.mu.Lock()
	at := time.Now()
	if p.next.After(at) {
		at = p.next
	}
	p.next = at.Add(bulkEvery)
	p.mu.Unlock()
	return pages.Pause(ctx, time.Until(at))
}

// bulkLink links to the confirmation of a bulk change.
type bulkLink struct {
	Verb  string
	Count int
	Path  string
}

func bulkPath(verb string, q url.Values) string {
	to := url.Values{"verb": {verb}}
	for name, values := range q {
		to[name] = values
	}
	return "/console/bulk?" + to.Encode()
}

// bulkData is the page that asks for confirmation of a bulk change or shows its result.
type bulkData struct {
	bulkLink
	Confirmed int // the number that was confirmed, if it has grown since; 0: none
	Filter    url.Values
	List      string // the path of the list
	// Begun means that the change is in progress. Gap is a placeholder for the progress and the result.
	Begun bool
	Gap   template.HTML
}

// bulkPage is the confirmation of a bulk change, and its progress.
type bulkPage struct {
	index   *index
	lists   *pages.Scope
	changes *changer
	pace    pace
	places  chan struct{}
	log     *slog.Logger
}

func (p *bulkPage) page() pages.Page {
	return pages.Page{
		Name: "bulk", Title: "Bulk change", Scope: p.lists, State: p.index.changes,
		Data: func(ctx context.Context, _ *pages.Reader, r *http.Request) (any, error) {
			d, _, err := p.selected(ctx, r)
			return d, err
		},
	}
}

// selected returns the data of a request, and the operations.
func (p *bulkPage) selected(ctx context.Context, r *http.Request) (d bulkData, rows []*row, err error) {
	verb := r.URL.Query().Get("verb")
	if verb != verbRetry && verb != verbCancel {
		return d, nil, pages.ErrNothing
	}
	if err := p.index.wait(ctx); err != nil {
		return d, nil, err
	}
	f, q, err := filterOf(r, "verb")
	if err != nil {
		return d, nil, err
	}
	rows = p.index.all(f, verb)
	d = bulkData{
		bulkLink: bulkLink{verb, len(rows), bulkPath(verb, q)}, Filter: q, List: "/console/operations",
	}
	if len(q) > 0 {
		d.List += "?" + q.Encode()
	}
	return d, rows, nil
}

// action cancels or retries all operations that a filter selects. The response streams the progress and ends with the
// work. No state is kept between requests, so any replica can serve them. A repeated request continues with the
// remaining operations.
func (p *bulkPage) action() pages.Action {
	return pages.Action{Path: "bulk", Page: p.page(), Do: p.act}
}

func (p *bulkPage) act(ctx context.Context, rd *pages.Reader, r *http.Request, a *pages.Answer) error {
	d, rows, err := p.selected(ctx, r)
	if err != nil {
		return err
	}
	if confirmed, _ := strconv.Atoi(r.PostFormValue("count")); len(rows) > confirmed {
		d.Confirmed = confirmed
		a.Show(http.StatusConflict, d)
		return nil
	}
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	default:
		return &pages.Message{
			Status: http.StatusServiceUnavailable, Title: "Too many bulk changes", RetryAfter: time.Minute,
			Text: "Too many readers are changing operations in bulk. Try again in a minute.",
		}
	}
	d.Begun, d.Gap = true, bulkGap
	return a.Stream(d, bulkGap, func(send func(part string, data any) error) {
		work := &bulkWork{changes: p.changes, pace: &p.pace, rd: rd, verb: d.Verb, Total: len(rows)}
		p.log.InfoContext(ctx, "a bulk change has begun on the console", "verb", d.Verb, "operations", len(rows), "user",
			rd.Name())
		work.run(ctx, rows, func() error { return send("bulkProgress", work) })
		p.log.InfoContext(ctx, "a bulk change has ended on the console", "verb", d.Verb, "done", work.Done,
			"failed", work.Failed, "left", work.Left(), "user", rd.Name())
		_ = send("bulkResult", work) // it fails only if the reader has disconnected
	})
}

// bulkGap is the placeholder for the progress in the page.
const bulkGap = "<!-- the progress -->"

// bulkWork is a bulk change in progress.
type bulkWork struct {
	changes *changer
	pace    *pace
	rd      *pages.Reader
	verb    string

	Total, Done, Failed int
	Failures            []bulkFailure
	Stopped             string // why it ended early
}

// bulkFailure is an operation that was not changed.
type bulkFailure struct {
	*row
	Error string
}

// Verb returns the verb.
func (b *bulkWork) Verb() string { return b.verb }

// Tried returns the number of processed operations, and Left the number of the others.
func (b *bulkWork) Tried() int { return b.Done + b.Failed }
func (b *bulkWork) Left() int  { return b.Total - b.Tried() }

// run changes the operations one by one, until the reader disconnects or the session ends.
func (b *bulkWork) run(ctx context.Context, rows []*row, report func() error) {
	reported := time.Time{}
	for _, r := range rows {
		if time.Since(reported) >= bulkReport {
			if reported = time.Now(); report() != nil {
				b.Stopped = "The page was closed."
				return
			}
		}
		err := b.pace.wait(ctx)
		if err == nil {
			err = b.rd.Stays(ctx)
		}
		if err != nil {
			b.Stopped = err.Error()
			return
		}
		if err = b.changes.mayChange(ctx, b.rd, r.key); err == nil {
			err = b.changes.change(ctx, b.rd, b.verb, r.key, r.id)
		}
		switch {
		case err == nil:
			b.Done++
		case ctx.Err() != nil, pages.Unknown(err):
			b.Stopped = err.Error()
			return
		default:
			if b.Failed++; len(b.Failures) < maxBulkFailed {
				text := err.Error()
				if pages.Refused(err) {
					text = pages.ErrNothing.Error()
				}
				b.Failures = append(b.Failures, bulkFailure{r, text})
			}
		}
	}
}
