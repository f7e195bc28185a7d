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
	// logouts knows the ended sessions.
	logouts *logouts
	pages   map[string]*template.Template
	index   *index // nil without operations
	live    *live
	bulks   *bulks
	rates   *rates
	shown   *sharedAnswers
	// defined remembers flows.
	defined definitions
	log     *slog.Logger
	now     func() time.Time
}

// New returns the handler of /console/ and /api/why. It adds its background work to the runtime. The handler is safe
// for concurrent use. New fails if the options are incomplete or invalid.
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

// view is one page: its name, its authorization and its data.
type view struct {
	name  string // of the template, and in paths
	title string
	// allow checks the reader's right. Nil: the right to pages about the whole program.
	allow func(ctx context.Context, rd *reader, r *http.Request) error
	// access returns the right to the part of a namespace. Nil: the page has no such parts.
	access func(namespace string) httpapi.Access
	data   func(ctx context.Context, rd *reader, r *http.Request) (any, error)
	// state returns a number that changes with the content. Nil: the page is rendered to detect changes.
	state func() uint64
	// shows reports whether the page shows a kind. Nil: it shows none.
	shows shows
}

// page is the input of a template.
type page struct {
	Title, Name string
	Reader      string
	Open        bool // no login is required
	Named       bool // by a proxy, which handles logout
	CSRF        string
	Nav         []link
	At          time.Time
	Health      *health
	URL         string   // URL of the console as the reader reached it
	Refused     []string // resources of this page that the API server refuses
	Live        string   // path of the stream with updates
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

// changes returns a number that changes with the operations. With sharding the store lacks events of other slots, so
// the number differs on each call.
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

// serve adds a page and its update stream.
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

// show returns the data of a page if the reader has the right.
func (c *console) show(ctx context.Context, rd *reader, v view, r *http.Request) (any, error) {
	if err := c.maySee(ctx, rd, v, r); err != nil {
		return nil, err
	}
	return v.data(ctx, rd, r)
}

// maySee checks the session and the right to a page.
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

// enter authenticates a request, or redirects to the login page.
func (c *console) enter(w http.ResponseWriter, r *http.Request) (*reader, bool) {
	rd, err := c.read(r)
	if err != nil {
		c.toLogin(w, r, err)
		return nil, false
	}
	rd.renew(w, r)
	return rd, true
}

// contents returns a page without the parts around its main element. rd may be nil.
func (c *console) contents(r *http.Request, rd *reader, v view, data any) *page {
	p := &page{Title: v.title, Name: v.name, At: c.now(), Health: &health{}, Data: data, URL: urlOf(r)}
	if rd != nil {
		p.Reader, p.Open, p.Named, p.CSRF = rd.name, rd.open, rd.named, rd.csrf
		p.Health = c.health()
		p.Refused = p.Health.of(c, v, r)
	}
	return p
}

// page returns a complete page.
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

// plainHost matches hosts that need no quoting in a shell.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]+$`)

// urlOf returns the scheme and host by which the reader reached the console, or "" if the host is not plain.
func urlOf(r *http.Request) string {
	if !plainHost.MatchString(r.Host) {
		return ""
	}
	scheme := "http"
	// A client can forge the header, but only that client sees the result.
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// render answers with a complete page, or with an error.
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
	_, _ = w.Write(b.Bytes()) // it fails only if the client has disconnected
}

// errNothing is the error for a missing object and for a hidden one, so that both answers are the same.
var errNothing = errors.New("there is nothing here, or nothing that you may see")

// fail answers with an error.
func (c *console) fail(w http.ResponseWriter, r *http.Request, rd *reader, err error) {
	switch {
	case errors.Is(err, errOver), unknown(err) && (rd == nil || !rd.named): // a proxy has its own login
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

// message shows a page with a single message.
func (c *console) message(w http.ResponseWriter, r *http.Request, rd *reader, status int, title, text string) {
	c.render(w, status, c.page(r, rd, view{name: "message", title: title}, text))
}

// parsePages parses the template of each page, with the layout.
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
