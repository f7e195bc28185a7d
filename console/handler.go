package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

//go:embed static templates
var files embed.FS

// console is the handler of all pages.
type console struct {
	Options
	seals *seals
	// logouts are the sessions that were ended.
	logouts *logouts
	pages   map[string]*template.Template
	index   *index // nil: there are no operations
	live    *live
	bulks   *bulks
	rates   *rates
	shown   *sharedAnswers
	// defined are the flows that were seen.
	defined definitions
	log     *slog.Logger
	now     func() time.Time
}

// New returns the handler of /console/ and /api/why. It is safe for concurrent use, and has the runtime run what it needs
// besides. Errors: what the options lack.
func New(o Options) (http.Handler, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c := &console{Options: o, log: o.Logger, now: time.Now, live: newLive(), bulks: newBulks(), shown: newShared()}
	var err error
	if c.seals, err = newSeals(o.SessionKey); err != nil {
		return nil, err
	}
	c.logouts = newLogouts(&c.Options)
	if c.pages, err = parsePages(); err != nil {
		return nil, err
	}
	if o.Operations != nil {
		c.index = newIndex(o.Operations.Operations, o.Operations.Executor.Stuck)
		o.Runtime.AddAlways("console index", c.index.run)
	}
	c.rates = newRates(c.sample)
	o.Runtime.AddAlways("console rates", c.rates.run)
	if o.GuardDebug {
		o.Runtime.GuardDebug(c.guard)
	}
	return o.Proxy.Handler(c.secured(c.routes())), nil
}

// view is one page: what it is called, who may see it, and what is shown.
type view struct {
	name  string // of the template, and of the page in paths
	title string
	// allow says who may see it; nil: whoever may see what is about the whole program.
	allow func(ctx context.Context, rd *reader, r *http.Request) error
	// access is what it takes to see the part of a namespace; nil: the page has no such parts.
	access func(namespace string) httpapi.Access
	data   func(ctx context.Context, rd *reader, r *http.Request) (any, error)
	// state is a number that changes with what is shown; nil: it is made to be compared.
	state func() uint64
	// shows tells of which kinds; nil: of none.
	shows shows
}

// page is what a template is given.
type page struct {
	Title, Name string
	Reader      string
	Open        bool // nobody has to log in
	Named       bool // by a proxy, where the reader logs out
	CSRF        string
	Nav         []link
	At          time.Time
	Health      *health
	URL         string   // where the reader has reached the console
	Refused     []string // resources of this page that the API server refuses
	Live        string   // the path of the stream that keeps it up to date
	Data        any
}

type link struct {
	Name, Title, Path string
	Here              bool
}

func (c *console) views() []view {
	all := []view{{name: "overview", title: "Overview", data: c.overview}}
	if c.Operations != nil {
		all = append(all,
			view{
				name: "operations", title: "Operations", allow: c.mayIn(listOperations), access: listOperations,
				data: c.operations, state: c.changes, shows: showsKind(v1alpha1.KindOperation),
			},
			view{
				name: "webhooks", title: "Webhooks", allow: c.mayIn(listWebhooks), access: listWebhooks, data: c.webhooks,
				shows: showsKind(v1alpha1.KindWebhook),
			})
	}
	all = append(all,
		view{name: "sources", title: "Sources", data: c.sources, shows: showsAll},
		view{name: "controllers", title: "Controllers", data: c.controllers, shows: showsControlled},
		view{name: "flows", title: "Flows", data: c.flows})
	if c.Shards != nil {
		all = append(all, view{name: "shards", title: "Shards", data: c.shards})
	}
	return append(all, view{name: "why", title: "Why?", allow: anybody, data: c.whyPage})
}

// changes is a number that changes with the operations. Of those that the store does not have, as in a group of replicas,
// nobody tells: it changes as often as an open page is looked at.
func (c *console) changes() uint64 {
	if _, sharded := c.Operations.Operations.Held(); sharded {
		return uint64(c.now().UnixNano())
	}
	return c.index.changes()
}

func anybody(context.Context, *reader, *http.Request) error { return nil }

func (c *console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+staticPath, serveStatic())
	mux.HandleFunc("GET /console/{$}", c.land)
	mux.HandleFunc("GET /console/login", c.loginPage)
	mux.HandleFunc("POST /console/login", c.login)
	mux.HandleFunc("POST /console/logout", c.logout)
	for _, v := range c.views() {
		c.serve(mux, "/console/"+v.name, v)
	}
	if c.Operations != nil {
		c.serve(mux, "/console/webhooks/{namespace}/{name}", view{
			name: "webhook", title: "Webhook", allow: c.mayGetWebhook, data: c.webhook,
			shows: showsKind(v1alpha1.KindWebhook),
		})
		c.serve(mux, "/console/operations/{namespace}/{name}", view{
			name: "operation", title: "Operation", allow: c.mayGet, data: c.operation, state: c.changes,
			shows: showsKind(v1alpha1.KindOperation),
		})
		mux.HandleFunc("POST /console/operations/{namespace}/{name}/{verb}", c.act)
		c.serve(mux, "/console/bulk", c.bulkView())
		mux.HandleFunc("POST /console/bulk", c.bulk)
	}
	c.serve(mux, "/console/flows/{flow...}", view{name: "flow", title: "Flow", data: c.flow})
	c.serve(mux, "/console/fibers/{id}", view{name: "fiber", title: "Fiber", data: c.fiber})
	mux.HandleFunc("GET /api/why", c.whyAPI)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { c.nothing(w, r, nil) })
	return mux
}

// serve adds a page, and the stream that keeps it up to date.
func (c *console) serve(mux *http.ServeMux, pattern string, v view) {
	mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
		rd, ok := c.enter(w, r)
		if !ok {
			return
		}
		ctx := httpapi.WithClient(r.Context(), r)
		data, err := c.show(ctx, rd, v, r)
		if errors.Is(err, errWhich) {
			c.choose(w, r, rd, v)
			return
		}
		if err != nil {
			c.fail(w, r, rd, err)
			return
		}
		p := c.page(r, rd, v, data)
		p.Live = "/console/live" + r.URL.EscapedPath()[len("/console"):]
		if r.URL.RawQuery != "" {
			p.Live += "?" + r.URL.RawQuery
		}
		c.render(w, http.StatusOK, p)
	})
	mux.HandleFunc("GET /console/live"+pattern[len("/console"):], func(w http.ResponseWriter, r *http.Request) {
		c.stream(w, r, v)
	})
}

// show returns what a page shows to a reader, who has to have the right.
func (c *console) show(ctx context.Context, rd *reader, v view, r *http.Request) (any, error) {
	if err := c.maySee(ctx, rd, v, r); err != nil {
		return nil, err
	}
	return v.data(ctx, rd, r)
}

// maySee wants the right to a page, of somebody whose session has not ended since.
func (c *console) maySee(ctx context.Context, rd *reader, v view, r *http.Request) error {
	if err := rd.stays(ctx); err != nil {
		return err
	}
	switch {
	case v.allow != nil:
		return v.allow(ctx, rd, r)
	default:
		return rd.mayRun(ctx, v.name)
	}
}

// enter finds out who asks, and shows the login page to who has not said.
func (c *console) enter(w http.ResponseWriter, r *http.Request) (*reader, bool) {
	rd, err := c.read(r)
	if err != nil {
		c.toLogin(w, r, err)
		return nil, false
	}
	rd.renew(w, r)
	return rd, true
}

// contents returns a page without what is around its main element. Without a reader it is about nobody's rights.
func (c *console) contents(r *http.Request, rd *reader, v view, data any) *page {
	p := &page{Title: v.title, Name: v.name, At: c.now(), Health: &health{}, Data: data, URL: urlOf(r)}
	if rd != nil {
		p.Reader, p.Open, p.Named, p.CSRF = rd.name, rd.open, rd.named, rd.csrf
		p.Health = c.health()
		p.Refused = p.Health.of(c, v, r)
	}
	return p
}

// page returns a page as a whole.
func (c *console) page(r *http.Request, rd *reader, v view, data any) *page {
	p := c.contents(r, rd, v, data)
	if rd != nil {
		p.Nav = c.menu(httpapi.WithClient(r.Context(), r), rd, r.URL)
		for i := range p.Nav {
			p.Nav[i].Here = p.Nav[i].Name == p.Name
		}
	}
	return p
}

// plainHost is the host of a URL that a shell takes as it is.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]+$`)

// urlOf is where a reader has reached the console: scheme and host; empty if the host is none.
func urlOf(r *http.Request) string {
	if !plainHost.MatchString(r.Host) {
		return ""
	}
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" { // it is shown to the sender only
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// render answers with a page as a whole, or with an error instead.
func (c *console) render(w http.ResponseWriter, status int, p *page) {
	var b bytes.Buffer
	if err := c.pages[p.Name].ExecuteTemplate(&b, "layout", p); err != nil {
		c.log.Error("cannot make a page of the console", "page", p.Name, "error", err)
		http.Error(w, "this page cannot be shown", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the caller is gone if this fails
}

// errNothing is what is not there, or may not be seen: both answer alike.
var errNothing = errors.New("there is nothing here, or nothing that you may see")

// fail answers with what an error means.
func (c *console) fail(w http.ResponseWriter, r *http.Request, rd *reader, err error) {
	switch {
	case errors.Is(err, errOver), unknown(err) && (rd == nil || !rd.named): // else there is nowhere to log in
		c.toLogin(w, r, errOver)
	case errors.Is(err, errNothing), refused(err):
		c.nothing(w, r, rd)
	default:
		status, text := http.StatusServiceUnavailable, err.Error()
		if p, ok := errors.AsType[*httpapi.Problem](err); ok {
			status, text = p.Status, p.Error()
		}
		c.message(w, r, rd, status, "This cannot be shown now", text)
	}
}

func (c *console) nothing(w http.ResponseWriter, r *http.Request, rd *reader) {
	if rd == nil {
		var err error
		if rd, err = c.read(r); err != nil {
			c.toLogin(w, r, err)
			return
		}
	}
	c.message(w, r, rd, http.StatusNotFound, "Nothing here", errNothing.Error()+".")
}

// message shows a page that says one thing.
func (c *console) message(w http.ResponseWriter, r *http.Request, rd *reader, status int, title, text string) {
	c.render(w, status, c.page(r, rd, view{name: "message", title: title}, text))
}

// parsePages makes a template of each page, with the layout around it.
func parsePages() (map[string]*template.Template, error) {
	base, err := template.New("").Funcs(funcs).ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("cannot make the console: %w", err)
	}
	entries, err := fs.ReadDir(files, "templates")
	if err != nil {
		return nil, fmt.Errorf("cannot make the console: %w", err)
	}
	pages := map[string]*template.Template{}
	for _, e := range entries {
		name := e.Name()[:len(e.Name())-len(".html")]
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(files, "templates/"+e.Name())
		}
		if err != nil {
			return nil, fmt.Errorf("cannot make the console: %w", err)
		}
		pages[name] = t
	}
	return pages, nil
}
