package fairlead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/profile"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/reconcile"
)

// httpDrain bounds how long requests in progress may take after the stop.
const httpDrain = 5 * time.Second

// maxScrapes bounds the concurrent reads of the metrics.
const maxScrapes = 8

// Handler serves the runtime's own pages:
//
//	/healthz           200 while the API server has confirmed the state of every watched resource within the bound,
//	                   else 503 with the stale resources. Resources that the API server does not serve or forbids are
//	                   listed and do not count, since a restart does not change that
//	/readyz            200 when additionally every resource has been listed and every observer has handled its initial
//	                   objects, or when another process leads; else 503 with the reasons. In a process with AddAlways,
//	                   200 when every resource has been listed once and is not stale, whether or not the process leads;
//	                   the answer also lists the reasons why the leader is not ready yet, and later refusals. Kinds
//	                   that the process converts itself (admission.Convert) need not be listed. Checks of AddReady
//	                   must succeed in every case
//	/metrics           metrics in the format of Prometheus
//	/debug/            an index of the pages
//	/debug/sources     the resources that observers, reconcilers or clients watch, and their state
//	/debug/controllers the controllers and their failing objects: error, attempts, next try
//	/debug/observers   the observers, with selector, declaration and progress
//	/debug/flows       live fibers, see Flows
//	/debug/pprof/      profiles of the process, such as goroutine?debug=2, for go tool pprof. They slow the process down
//	                   and show what it executes; without GuardDebug they answer only callers on the same machine
//
// It also serves the pages of Handle. The debug pages are text, or JSON with ?format=json. They need no authentication
// unless GuardDebug adds it.
func (rt *Runtime) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guarded := rt.guarded.Load(); guarded != nil && (isDebug(r.URL.Path) || isDebug(path.Clean("/"+r.URL.Path))) {
			(*guarded).ServeHTTP(w, r)
			return
		}
		rt.answer(w, r, false)
	})
}

// answer serves the page that the pattern names. Pages of Handle below profile.Root take precedence.
func (rt *Runtime) answer(w http.ResponseWriter, r *http.Request, guarded bool) {
	if !strings.HasPrefix(r.URL.Path, profile.Root) {
		rt.mux.ServeHTTP(w, r)
		return
	}
	switch _, pattern := rt.mux.Handler(r); {
	case strings.Contains(pattern, profile.Root):
		rt.mux.ServeHTTP(w, r)
	case guarded || serve.IsLocal(r):
		rt.profiles.ServeHTTP(w, r)
	default:
		text(w, http.StatusForbidden, "Profiles answer callers of the same machine, as through kubectl port-forward, or those "+
			"that a guard lets pass: console.Options{GuardDebug: true}, or Runtime.GuardDebug.")
	}
}

func isDebug(at string) bool { return at == "/debug" || strings.HasPrefix(at, "/debug/") }

// GuardDebug wraps all pages below /debug/, including those of Handle, with guard. The guard passes a request on to
// pages if the caller may see the page. GuardDebug is safe for concurrent use; the last call wins.
// console.Options.GuardDebug makes the console the guard.
func (rt *Runtime) GuardDebug(guard func(pages http.Handler) http.Handler) {
	if guard == nil {
		rt.mistake(errors.New("cannot guard the debug pages: the guard is nil"))
		return
	}
	guarded := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { rt.answer(w, r, true) }))
	rt.guarded.Store(&guarded)
}

// Handle adds a page. The pattern is that of http.ServeMux; Run returns an error for a pattern that is malformed or
// taken. The index of /debug/ lists pages below it.
func (rt *Runtime) Handle(pattern string, page http.Handler) {
	if p := protect.Call(func() { rt.mux.Handle(pattern, page) }); p != nil {
		rt.mistake(fmt.Errorf("cannot serve %q: %v", pattern, p.Value))
		return
	}
	if _, name, ok := strings.Cut(pattern, "/debug/"); ok && name != "" {
		rt.mu.Lock()
		defer rt.mu.Unlock()
		rt.pages = append(rt.pages, "/debug/"+name)
	}
}

func (rt *Runtime) ownPages() {
	rt.Handle("GET /healthz", http.HandlerFunc(rt.healthz))
	rt.Handle("GET /readyz", http.HandlerFunc(rt.readyz))
	rt.Handle("GET /metrics", promhttp.HandlerFor(rt.opts.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	rt.Handle("GET /debug/{$}", http.HandlerFunc(rt.index))
	rt.pages = []string{profile.Root}
	rt.Handle("GET /debug/sources", page(func() fmt.Stringer { return rt.sources() }))
	rt.Handle("GET /debug/controllers", reconcile.DebugHandler(rt.overseen))
	rt.Handle("GET /debug/observers", page(func() fmt.Stringer { return rt.Describe() }))
}

func (rt *Runtime) openConsole() {
	pages, err := rt.opts.console.Open(rt)
	if err != nil {
		rt.mistake(err)
		return
	}
	rt.Handle("/console/", pages)
	rt.Handle("/api/", pages)
}

// sources returns the declared sources, then the other watched stores.
func (rt *Runtime) sources() sources {
	all := rt.Describe().Sources
	for _, c := range rt.members() {
		all = append(all, c.observers.DescribeOthers(c.stores())...)
	}
	return all
}

// sources prints sources without their observers and with the counters of each scope.
type sources []inspect.Source

// String returns one line per source and scope.
func (s sources) String() string {
	var b strings.Builder
	for _, d := range s {
		d.Observers = nil
		fmt.Fprint(&b, inspect.Sources{Sources: []inspect.Source{d}})
		for _, st := range d.Status {
			fmt.Fprintf(&b, "  %q: %s since %s, staleness %v, %+v\n", st.Namespace, st.Reason, st.Since.Format(time.RFC3339),
				st.Staleness.Round(time.Millisecond), st.Counters)
		}
	}
	return b.String()
}

// page serves the result of describe, called at the time of the request.
func page(describe func() fmt.Stringer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := describe()
		if r.URL.Query().Get("format") == "json" {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(d) // an error means that the caller has disconnected
			return
		}
		text(w, http.StatusOK, d.String())
	})
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, strings.TrimRight(body, "\n")) // an error means that the caller has disconnected
}

func (rt *Runtime) index(w http.ResponseWriter, _ *http.Request) {
	rt.mu.Lock()
	pages := slices.Sorted(slices.Values(rt.pages))
	rt.mu.Unlock()
	text(w, http.StatusOK, strings.Join(pages, "\n"))
}

func (rt *Runtime) healthz(w http.ResponseWriter, _ *http.Request) {
	health(w, rt.stale(), strings.Join(append([]string{"ok"}, rt.refused(0)...), "\n"))
}

func (rt *Runtime) readyz(w http.ResponseWriter, _ *http.Request) {
	problems := append(rt.stale(), rt.unready()...)
	now := rt.phase.Load().(phase)
	if now != phaseNew && now != phaseStopping && rt.serves() {
		rt.readyToServe(w, problems, now)
		return
	}
	now, lacking := rt.lacking(now)
	health(w, slices.Concat(problems, rt.refused(rt.opts.staleness), lacking), string(now))
}

// part is a readiness check of AddReady.
type part struct {
	name  string
	ready func() error
}

// unready returns the names of the AddReady checks that fail, with the errors.
func (rt *Runtime) unready() []string {
	rt.mu.Lock()
	parts := slices.Clone(rt.parts)
	rt.mu.Unlock()
	var problems []string
	for _, p := range parts {
		var err error
		if panicked := protect.Call(func() { err = p.ready() }); panicked != nil {
			rt.log.Error("a part that was asked whether it is ready panicked", "name", p.name, "error", panicked)
			err = fmt.Errorf("it panicked: %v", panicked.Value)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", p.name, err))
		}
	}
	return problems
}

// readyToServe answers /readyz for a process that serves whether or not it leads. A process that becomes the leader
// starts more watches and stays ready meanwhile.
func (rt *Runtime) readyToServe(w http.ResponseWriter, stale []string, now phase) {
	if !rt.heard.Load() {
		unlisted := rt.unlisted((*Host).needsNoService)
		rt.heard.Store(len(unlisted) == 0)
		stale = append(stale, unlisted...)
	}
	now, lacking := rt.lacking(now)
	health(w, stale, strings.Join(slices.Concat([]string{string(now)}, lacking, rt.refused(0)), "\n"))
}

// lacking returns the phase, and the reasons why the process does not do all of its work or cannot take it over.
func (rt *Runtime) lacking(now phase) (_ phase, problems []string) {
	if err := rt.sharing.waits(); err != nil && (now == phaseStarting || now == phaseReady) {
		return phase("standby: " + err.Error()), nil
	}
	switch now {
	case phaseStandby:
		leader, err := rt.leader()
		if err != nil {
			return now, []string{"standby: " + err.Error()}
		}
		now = phase("standby: " + leader)
	case phaseReady:
		problems = append(rt.unlisted(nil), rt.blocked()...)
	case phaseStarting:
		problems = append(append(problems, string(now)), rt.blocked()...)
		for _, c := range rt.members() {
			problems = append(problems, c.observers.Unsynced()...)
		}
	default:
		problems = append(problems, string(now))
	}
	return now, problems
}

// leader returns a description of the current leader. It returns an error if this process cannot take over from it.
func (rt *Runtime) leader() (string, error) {
	knows, ok := rt.opts.leadership.(interface {
		Status() (leader string, err error)
	})
	if !ok {
		return "another process leads", nil
	}
	leader, err := knows.Status()
	if err == nil && leader == "" {
		err = errors.New("there is no leader, or it is not known yet")
	}
	if at, ok := rt.opts.leadership.(interface{ Address() string }); ok && err == nil && at.Address() != "" {
		leader += ", at " + at.Address()
	}
	return "another process leads: " + leader, err
}

// overseen returns the controllers of all clusters.
func (rt *Runtime) overseen() []*reconcile.Controller {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Clone(rt.controllers)
}

// blocked names the controllers that cannot work, except those that wait for a list; unlisted reports these.
func (rt *Runtime) blocked() []string {
	var problems []string
	for _, c := range rt.overseen() {
		switch d := c.Describe(0); {
		case d.Error != "":
			problems = append(problems, fmt.Sprintf("controller %s: %s: %s", strings.TrimSpace(d.Cluster+" "+d.Name), d.State,
				d.Error))
		case d.State == inspect.StateNew:
			problems = append(problems, fmt.Sprintf("controller %s: %s", strings.TrimSpace(d.Cluster+" "+d.Name), d.State))
		}
	}
	slices.Sort(problems)
	return problems
}

func health(w http.ResponseWriter, problems []string, fine string) {
	if len(problems) > 0 {
		text(w, http.StatusServiceUnavailable, strings.Join(problems, "\n"))
		return
	}
	text(w, http.StatusOK, fine)
}

// watched calls fn for every watched store. A process that does not lead watches nothing unless it has AddAlways
// functions.
func (rt *Runtime) watched(fn func(c *Host, name string, st *cache.Store)) {
	if now := rt.phase.Load().(phase); now == phaseNew || now == phaseStandby && !rt.serves() {
		return
	}
	for _, c := range rt.members() {
		for _, st := range c.stores() {
			fn(c, strings.TrimSpace(c.name+" "+st.Options().Resource.GroupResource().String()), st)
		}
	}
}

// stale names the scopes that the server has not confirmed for longer than the bound. The age of a scope without any
// answer counts from the start of its source, as its observers record it, or from the first call here. A resource that
// the server refuses is not stale, since a restart does not change that.
func (rt *Runtime) stale() []string {
	var problems []string
	check := func(name, namespace string, age time.Duration, reason, message string) {
		if age > rt.opts.staleness {
			problems = append(problems, strings.TrimSpace(fmt.Sprintf("%s %s: state is %v old: %s %s",
				name, namespace, age.Round(time.Second), reason, message)))
		}
	}
	for _, s := range rt.Describe().Sources {
		name := strings.Join(append([]string{s.Cluster}, s.Selector...), " ")
		for _, st := range s.Status {
			if !st.Synced {
				check(name, st.Namespace, st.Silence, st.Reason, st.Message)
			}
		}
	}
	now := time.Now()
	seen := rt.firstSeen(now)
	rt.watched(func(_ *Host, name string, st *cache.Store) {
		first, ok := seen[st]
		if !ok { // listed since then
			return
		}
		for _, s := range st.Statuses() {
			age := s.Silence(now)
			if s.LastContact.IsZero() && !s.Refused() {
				age = now.Sub(first)
			}
			check(name, s.Namespace, age, string(s.Reason), s.Message)
		}
	})
	slices.Sort(problems)
	return slices.Compact(problems)
}

// refused names the scopes that the server refuses and whose state is older than the given age.
func (rt *Runtime) refused(older time.Duration) []string {
	var conditions []string
	now := time.Now()
	rt.watched(func(_ *Host, name string, st *cache.Store) {
		for _, s := range st.Statuses() {
			if s.Refused() && s.Staleness(now) >= older {
				conditions = append(conditions, strings.TrimSpace(name+" "+s.Namespace)+": "+string(s.Reason)+": "+s.Message)
			}
		}
	})
	slices.Sort(conditions)
	return slices.Compact(conditions)
}

// firstSeen returns the time of the first health check that saw each present store.
func (rt *Runtime) firstSeen(now time.Time) map[*cache.Store]time.Time {
	rt.mu.Lock()
	before := rt.seen
	rt.mu.Unlock()
	seen := map[*cache.Store]time.Time{}
	rt.watched(func(_ *Host, _ string, st *cache.Store) {
		seen[st] = now
		if at, ok := before[st]; ok {
			seen[st] = at
		}
	})
	rt.mu.Lock()
	rt.seen = seen
	rt.mu.Unlock()
	return seen
}

// unlisted names the stores that were never listed completely, with the reasons. It considers the stores that only
// selects; nil selects all.
func (rt *Runtime) unlisted(only func(*Host, *cache.Store) bool) []string {
	var problems []string
	rt.watched(func(c *Host, name string, st *cache.Store) {
		if only != nil && !only(c, st) {
			return
		}
		cluster := strings.TrimSuffix(name, st.Options().Resource.GroupResource().String())
		for _, why := range st.Unlisted() {
			problems = append(problems, cluster+why)
		}
	})
	slices.Sort(problems)
	return problems
}

// needsNoService reports whether a store can be listed before this process is ready. For kinds that the process
// converts this may fail: the API server reaches the converter through a Service, which routes only to ready processes.
func (c *Host) needsNoService(st *cache.Store) bool {
	return !c.cache.Holds(st.Options().Kind.GroupKind())
}

// listen serves the Handler until the context ends.
func (rt *Runtime) listen(ctx context.Context) error {
	listener, err := net.Listen("tcp", rt.opts.listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	rt.log.InfoContext(ctx, "serving health, metrics and debug pages", "address", listener.Addr().String())
	return serve.New(rt.Handler(), serve.Options{Drain: httpDrain, Logger: rt.log}).Run(ctx, listener)
}

// Serve answers requests until the context ends. Requests in progress then have up to five seconds to finish. Serve
// closes the listener. At most 2,048 connections are open, shared among the client addresses; at the bound, idle
// connections are closed first. A request header may take 10 seconds and a body 30, unless the handler sets another
// deadline (http.ResponseController). A connection waits two minutes for the next request.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	if listener == nil || handler == nil {
		return errors.New("cannot serve: no listener, or nothing to serve")
	}
	return serve.New(handler, serve.Options{Drain: httpDrain}).Run(ctx, listener)
}
