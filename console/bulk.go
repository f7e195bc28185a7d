package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/operations/httpapi"
)

const (
	// bulkEvery is the interval between two bulk changes of operations, for all readers of this process together.
	bulkEvery = 20 * time.Millisecond
	// maxBulks bounds the concurrent bulk changes.
	maxBulks = 8
	// bulkTells is the interval between progress updates.
	bulkTells = time.Second
	// maxBulkFailed bounds the failed operations that a page names.
	maxBulkFailed = 1000
)

// bulkVerbs are the verbs that can be applied to the result of a filter.
var bulkVerbs = []string{verbRetry, verbCancel}

// bulks limits the rate and the concurrency of bulk changes. It is safe for concurrent use.
type bulks struct {
	places chan struct{}

	mu   sync.Mutex
	next time.Time
}

func newBulks() *bulks { return &bulks{places: make(chan struct{}, maxBulks)} }

// wait waits for the next turn.
func (b *bulks) wait(ctx context.Context) error {
	b.mu.Lock()
	at := time.Now()
	if b.next.After(at) {
		at = b.next
	}
	b.next = at.Add(bulkEvery)
	b.mu.Unlock()
	return pause(ctx, time.Until(at))
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
	Partly    string
	// Begun means that the change is in progress. Gap is a placeholder for the progress and the result.
	Begun bool
	Gap   template.HTML
}

// bulkView returns the confirmation page.
func (c *console) bulkView() view {
	return view{
		name: "bulk", title: "Many operations", allow: c.mayIn(listOperations), access: listOperations, state: c.changes,
		data: func(ctx context.Context, _ *reader, r *http.Request) (any, error) {
			d, _, err := c.bulkOf(ctx, r)
			return d, err
		},
	}
}

// bulkOf returns the data of a request, and the operations.
func (c *console) bulkOf(ctx context.Context, r *http.Request) (d bulkData, rows []*row, err error) {
	verb := r.URL.Query().Get("verb")
	if verb != verbRetry && verb != verbCancel {
		return d, nil, errNothing
	}
	if err := c.index.look(ctx); err != nil {
		return d, nil, err
	}
	f, q, err := filterOf(r, c.now(), "verb")
	if err != nil {
		return d, nil, err
	}
	rows = c.index.all(f, verb, c.now())
	d = bulkData{bulkLink: bulkLink{verb, len(rows), bulkPath(verb, q)}, Filter: q, Partly: c.partly(), List: "/console/operations"}
	if len(q) > 0 {
		d.List += "?" + q.Encode()
	}
	return d, rows, nil
}

// bulk cancels or retries all operations that a filter selects. The response streams the progress and ends with the
// work. No state is kept between requests, so any replica can serve them. A repeated request continues with the
// remaining operations.
func (c *console) bulk(w http.ResponseWriter, r *http.Request) {
	rd, ok := c.enter(w, r)
	if !ok || !c.fromHere(w, r, rd) {
		return
	}
	ctx := httpapi.WithClient(r.Context(), r)
	v := c.bulkView()
	err := c.maySee(ctx, rd, v, r)
	if errors.Is(err, errWhich) {
		c.choose(w, r, rd, v)
		return
	}
	var d bulkData
	var rows []*row
	if err == nil {
		d, rows, err = c.bulkOf(ctx, r)
	}
	if err != nil {
		c.fail(w, r, rd, err)
		return
	}
	if confirmed, _ := strconv.Atoi(r.PostFormValue("count")); len(rows) > confirmed {
		d.Confirmed = confirmed
		c.render(w, http.StatusConflict, c.page(r, rd, v, d))
		return
	}
	select {
	case c.bulks.places <- struct{}{}:
		defer func() { <-c.bulks.places }()
	default:
		w.Header().Set("Retry-After", "60")
		c.message(w, r, rd, http.StatusServiceUnavailable, "This cannot be done now",
			"Too many readers are changing operations in bulk. Try again in a minute.")
		return
	}
	d.Begun, d.Gap = true, bulkGap
	var whole bytes.Buffer
	if err := c.pages[v.name].ExecuteTemplate(&whole, "layout", c.page(r, rd, v, d)); err != nil {
		c.fail(w, r, rd, err)
		return
	}
	head, tail, _ := bytes.Cut(whole.Bytes(), []byte(bulkGap))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	send := func(text []byte) error {
		if err := out.SetWriteDeadline(time.Now().Add(keepAlive)); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		return out.Flush()
	}
	if send(head) != nil {
		return
	}
	work := &bulkWork{c: c, rd: rd, verb: d.Verb, Total: len(rows)}
	c.log.InfoContext(ctx, "many operations are being changed on the console", "verb", d.Verb, "operations", len(rows), "user", rd.name)
	work.run(ctx, rows, func() error { return send(work.part("bulkProgress")) })
	c.log.InfoContext(ctx, "many operations were changed on the console", "verb", d.Verb, "done", work.Done, "failed", work.Failed,
		"left", work.Left(), "user", rd.name)
	_ = send(append(work.part("bulkResult"), tail...)) // it fails only if the reader has disconnected
}

// bulkGap is the placeholder for the progress in the page.
const bulkGap = "<!-- the progress -->"

// bulkWork is a bulk change in progress.
type bulkWork struct {
	c    *console
	rd   *reader
	verb string

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
func (b *bulkWork) run(ctx context.Context, rows []*row, tell func() error) {
	told := time.Time{}
	for _, r := range rows {
		if time.Since(told) >= bulkTells {
			if told = time.Now(); tell() != nil {
				b.Stopped = "The page was closed."
				return
			}
		}
		err := b.c.bulks.wait(ctx)
		if err == nil {
			err = b.rd.stays(ctx)
		}
		if err != nil {
			b.Stopped = err.Error()
			return
		}
		switch err := b.c.do(ctx, b.rd, b.verb, r.key, r.id); {
		case err == nil:
			b.Done++
		case ctx.Err() != nil, unknown(err):
			b.Stopped = err.Error()
			return
		default:
			if b.Failed++; len(b.Failures) < maxBulkFailed {
				text := err.Error()
				if refused(err) {
					text = errNothing.Error()
				}
				b.Failures = append(b.Failures, bulkFailure{r, text})
			}
		}
	}
}

// part renders a part of the page.
func (b *bulkWork) part(name string) []byte {
	var text bytes.Buffer
	if err := b.c.pages["bulk"].ExecuteTemplate(&text, name, b); err != nil {
		b.c.log.Error("cannot make a part of a page of the console", "part", name, "error", err)
		return []byte(fmt.Sprintf("<p>%d of %d</p>", b.Tried(), b.Total))
	}
	return text.Bytes()
}
