package console

import (
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"iter"
	"net/http"
	"time"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Open returns the handler for a runtime.
func (o Options) Open(rt *fairlead.Runtime) (http.Handler, error) {
	o.Runtime = rt
	return New(o)
}

// New returns the handler of /console/ and /api/why and, in a group of replicas, of /api/shards. It adds its background
// work to the runtime. The handler is safe for concurrent use. New fails if the options are incomplete or invalid.
func New(o Options) (http.Handler, error) {
	h, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("cannot make the console: %w", err)
	}
	return h, nil
}

// open connects the parts of a console.
func open(o Options) (http.Handler, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	rt := o.Runtime
	s := pages.SessionOptions{Key: o.SessionKey, Namespace: o.SessionNamespace, Log: o.Logger}
	if !o.InsecureNoAuth {
		s.Calls = rt.Calls()
	}
	sessions, err := pages.NewSessions(s)
	if err != nil {
		return nil, err
	}
	rt.Need(sessions.Rights()...)
	render, err := newRender(o)
	if err != nil {
		return nil, err
	}
	causes := &explainer{explain: rt.Why, resource: rt.ResourceOf}
	sections, err := openSections(o, causes, render)
	if err != nil {
		return nil, err
	}
	var recent pages.Recent[inspect.Runtime]
	status := func() inspect.Runtime {
		return recent.Get(func() inspect.Runtime { return rt.Status(maxFailures) })
	}
	var whole []access.Access
	for _, section := range sections {
		whole = append(whole, section.Whole...)
	}
	site := pages.NewSite(pages.SiteOptions{
		Readers: pages.NewReaders(o.Authorizer, sessions, o.InsecureNoAuth, whole), Render: render, Live: pages.NewLive(),
		Replicated: o.Shards != nil, Proxy: o.Proxy, Log: o.Logger,
		Health: func() *pages.Health { return healthOf(status(), sections) },
	})
	counters := newRates(func() map[string]float64 { return sampleOf(rt.Registry()) })
	rt.AddAlways("console rates", counters.run)
	fibers := &flows{engines: []func() iter.Seq[flow.Info]{rt.Fibers}}
	questions := &whyPage{answer: causes.answer}
	for _, section := range sections {
		if section.Fibers != nil {
			fibers.engines = append(fibers.engines, section.Fibers)
		}
		if section.Objects != nil {
			questions.objects = append(questions.objects, section.Objects)
		}
		if section.Run != nil {
			rt.AddAlways(section.Task, section.Run)
		}
	}
	// The menu has the pages in this order.
	site.AddPage((&overview{
		status: status, fibers: func() int { return fibers.counts().total }, rates: counters, sections: sections,
	}).page())
	for _, section := range sections {
		for _, p := range section.Pages {
			site.AddPage(p)
		}
		for _, a := range section.Actions {
			site.AddAction(a)
		}
	}
	site.AddPage((&sources{status: status, resource: rt.ResourceOf}).page())
	site.AddPage((&controllers{status: status, resource: rt.ResourceOf}).page())
	for _, p := range fibers.pages() {
		site.AddPage(p)
	}
	if o.Shards != nil {
		members := &shards{report: o.Shards}
		site.AddPage(members.page())
		site.AddAPI("/api/shards", members.api)
	}
	site.AddPage(questions.page())
	site.AddAPI("/api/why", questions.api)
	if o.GuardDebug {
		rt.GuardDebug(site.Guard)
	}
	return site.Handler(), nil
}

// openSections opens the sections and adds their templates.
func openSections(o Options, causes *explainer, render *pages.Render) (all []*pages.Contents, err error) {
	for _, section := range o.Sections {
		contents, err := section.Open(pages.Host{Log: o.Logger, Cache: o.Runtime.Cache(), Explain: causes.answer})
		if err != nil {
			return nil, err
		}
		if contents.Templates != nil {
			if err := render.Add(contents.Templates, contents.Funcs); err != nil {
				return nil, err
			}
		}
		all = append(all, contents)
	}
	return all, nil
}

//go:embed templates
var templates embed.FS

// newRender returns the Render of the library's pages.
func newRender(o Options) (*pages.Render, error) {
	render, err := pages.NewRender(o.Logger)
	if err != nil {
		return nil, err
	}
	own, err := fs.Sub(templates, "templates")
	if err != nil {
		return nil, err
	}
	return render, render.Add(own, template.FuncMap{
		"nodes": func(flow string, nodes []*graphNode) map[string]any {
			return map[string]any{"Flow": flow, "Nodes": nodes}
		},
		"number": number,
		"late":   func(since, now time.Time) bool { return !since.IsZero() && now.Sub(since) >= behindAfter },
		"stored": func(m store.MemoryStats) int64 { return m.Live + m.Unpacked },
	})
}
