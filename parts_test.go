package fairlead

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/profile"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/why"
)

var quiet = slog.New(slog.DiscardHandler)

// answerOf returns the response of a handler to a client on another machine.
func answerOf(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.RemoteAddr = "192.0.2.1:1"
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// The guard covers the pages below /debug/ and no others. Profiles are served to other machines only behind a guard.
func TestPages(t *testing.T) {
	t.Parallel()
	p := newPages()
	say := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	for pattern, page := range map[string]http.Handler{
		"GET /debug/{$}": http.HandlerFunc(p.index), "GET /debug/b": say("b"), "/debug/a": say("a"), "/public": say("public"),
	} {
		if err := p.add(pattern, page); err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range []string{"/public", "{"} {
		if err := p.add(pattern, say("")); err == nil {
			t.Errorf("pattern %q is accepted", pattern)
		}
	}
	if _, index := answerOf(p, "/debug/"); index != strings.Join([]string{
		"/debug/a", "/debug/b", profile.Root,
		"",
	}, "\n") {
		t.Errorf("the index is %q", index)
	}
	if code, _ := answerOf(p, profile.Root); code != http.StatusForbidden {
		t.Errorf("profiles answer %d without a guard", code)
	}
	var passed bool
	p.guard(func(pages http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !passed {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			pages.ServeHTTP(w, r)
		})
	})
	for _, tc := range []struct {
		path    string
		passed  bool
		code    int
		content string
	}{
		{"/public", false, http.StatusOK, "public"},
		{"/debug/a", false, http.StatusUnauthorized, ""},
		{"//debug/a", false, http.StatusUnauthorized, ""},
		{profile.Root, false, http.StatusUnauthorized, ""},
		{"/debug/a", true, http.StatusOK, "a"},
	} {
		passed = tc.passed
		if code, content := answerOf(p, tc.path); code != tc.code || content != tc.content {
			t.Errorf("%s answers %d, %q", tc.path, code, content)
		}
	}
	passed = true
	if code, _ := answerOf(p, profile.Root); code != http.StatusOK {
		t.Errorf("profiles answer %d behind a guard", code)
	}
}

// Readiness follows from the phase, the leader and the parts of AddReady.
func TestHealth(t *testing.T) {
	t.Parallel()
	errPart, errLeader := errors.New("the part is not ready"), errors.New("the leader is unknown")
	for _, tc := range []struct {
		reason string
		view   view
		part   error
		code   int
		says   string
	}{
		{"not started", view{}, nil, 503, "not started"},
		{"ready", view{phase: in(phaseReady)}, nil, 200, "ready"},
		{"stopping", view{phase: in(phaseStopping)}, nil, 503, "stopping"},
		{"a part is not ready", view{phase: in(phaseReady)}, errPart, 503, "p: the part is not ready"},
		{
			"a standby",
			view{phase: in(phaseStandby), leader: func() (string, error) { return "x leads", nil }},
			nil, 200,
			"x leads",
		},
		{
			"a standby that cannot take over",
			view{phase: in(phaseStandby), leader: func() (string, error) { return "", errLeader }},
			nil, 503, "the leader is unknown",
		},
		{
			"a member that waits for its slots",
			view{phase: in(phaseReady), slots: func() error { return errLeader }},
			nil, 200, "standby: the leader is unknown",
		},
		{
			"a standby that serves", view{
				phase: in(phaseStandby), leader: func() (string, error) { return "", errLeader },
				serves: func() bool { return true },
			}, nil, 200, "the leader is unknown",
		},
	} {
		v := view{
			phase: in(phaseNew), serves: func() bool { return false }, slots: func() error { return nil },
			clusters:    func() []*Host { return []*Host{{observers: observe.NewRegistry(observe.RegistryOptions{})}} },
			controllers: func() []*reconcile.Controller { return nil },
		}
		if tc.view.phase != nil {
			v.phase = tc.view.phase
		}
		if tc.view.slots != nil {
			v.slots = tc.view.slots
		}
		if tc.view.serves != nil {
			v.serves = tc.view.serves
		}
		v.leader = tc.view.leader
		h := &health{of: v, staleness: time.Minute, log: quiet}
		h.addPart("p", func() error { return tc.part })
		code, body := answerOf(http.HandlerFunc(h.readyz), "/readyz")
		if code != tc.code || !strings.Contains(body, tc.says) {
			t.Errorf("%s: %d, %q", tc.reason, code, body)
		}
		if code, body := answerOf(http.HandlerFunc(h.healthz), "/healthz"); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: healthy is %d, %q", tc.reason, code, body)
		}
	}
	h := &health{log: quiet}
	h.addPart("p", func() error { panic("of the part") })
	if got := h.unready(); len(got) != 1 || !strings.Contains(got[0], "of the part") {
		t.Errorf("a part that panics: %v", got)
	}
}

func in(p phase) func() phase { return func() phase { return p } }

// electionFake grants leadership until term ends.
type electionFake struct {
	term  context.Context
	err   error
	fence error
	done  bool
}

func (e *electionFake) Lead(context.Context) (context.Context, func(), error) {
	return e.term, func() { e.done = true }, e.err
}

func (e *electionFake) Fence(context.Context) error { return e.fence }

// The work of a leader is bound to its term.
func TestLeadershipHold(t *testing.T) {
	t.Parallel()
	errWork, errElection := errors.New("of the work"), errors.New("of the election")
	term, lose := context.WithCancel(context.Background())
	defer lose()
	lost, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		reason   string
		election electionFake
		work     func(context.Context) error
		want     []error
		works    bool
	}{
		{"the work ends", electionFake{term: term}, func(context.Context) error { return nil }, nil, true},
		{"the work fails", electionFake{term: term}, func(context.Context) error { return errWork }, []error{errWork}, true},
		{"the election fails", electionFake{err: errElection}, nil, []error{errElection}, false},
		{
			"leadership is lost", electionFake{term: lost}, func(ctx context.Context) error {
				<-ctx.Done()
				return errWork
			}, []error{ErrNotLeading, errWork}, true,
		},
	} {
		l := &leadership{election: &tc.election, log: quiet}
		worked := false
		err := l.hold(t.Context(), func(ctx context.Context) error {
			worked = true
			if b := binding.From(ctx); !b.RequireVersion || !errors.Is(b.Fence(), tc.election.fence) {
				t.Errorf("%s: the work has the binding %+v", tc.reason, b)
			}
			return tc.work(ctx)
		})
		if worked != tc.works || tc.election.done != tc.works || l.leading.Load() {
			t.Errorf("%s: worked %v, released %v, leading %v", tc.reason, worked, tc.election.done, l.leading.Load())
		}
		if (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %v", tc.reason, err)
		}
		for _, want := range tc.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v is not %v", tc.reason, err, want)
			}
		}
	}
}

// Declarations after the start of Run are mistakes, and the checks return the first ones.
func TestDeclared(t *testing.T) {
	t.Parallel()
	d := &declared{log: quiet}
	host := func(name string) *Host {
		return &Host{name: name, observers: observe.NewRegistry(observe.RegistryOptions{})}
	}
	errEarly, errCheck := errors.New("early"), errors.New("of a check")
	if !d.join(host("a"), "x.go:1") || d.serves() {
		t.Error("a cluster is refused")
	}
	checked := host("b")
	checked.Check(func() error { return errCheck })
	d.join(checked, "x.go:2")
	d.addAlways(task{name: "web"})
	d.mistake(errEarly)
	d.mistake(nil)
	checks, err := d.begin()
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	for _, check := range checks {
		errs = append(errs, check())
	}
	if err := errors.Join(errs...); !errors.Is(err, errEarly) || !errors.Is(err, errCheck) {
		t.Errorf("the checks return %v", err)
	}
	if _, err := d.begin(); !errors.Is(err, errRan) {
		t.Errorf("a second start: %v", err)
	}
	if d.join(host("c"), "x.go:3") || len(d.members()) != 2 {
		t.Error("a cluster joins after the start")
	}
	d.addAlways(task{name: "late"})
	if len(d.tasks()) != 1 || !d.serves() {
		t.Errorf("functions: %v", d.tasks())
	}
	for _, want := range []string{"x.go:3: cannot join cluster \"c\"", `cannot add "late"`} {
		if err := d.mistakes(); !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
}

func TestDeclaredNames(t *testing.T) {
	t.Parallel()
	d := &declared{log: quiet}
	for _, name := range []string{"a", "", "a"} {
		d.join(&Host{name: name}, "x.go:1")
	}
	for _, want := range []string{"it has no name", `another one is named "a"`} {
		if err := d.mistakes(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
}

// Additions wait for the start, and run at once after it.
func TestAdditions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a additions
		ran := make(chan string, 3)
		add := func(name string) {
			a.add(task{name, func(context.Context) error { ran <- name; return nil }})
		}
		add("early")
		synctest.Wait()
		if len(ran) != 0 {
			t.Error("the addition runs before the start")
		}
		g := newTasks(t.Context(), func(err error) { t.Error(err) })
		a.start(g)
		add("late")
		got := []string{<-ran, <-ran}
		if slices.Sort(got); !slices.Equal(got, []string{"early", "late"}) {
			t.Errorf("ran %v", got)
		}
		if err := g.stop(time.Second); err != nil {
			t.Error(err)
		}
		add("after the stop")
		synctest.Wait()
		if len(ran) != 0 {
			t.Error("the addition runs after the stop")
		}
	})
}

func TestEngines(t *testing.T) {
	t.Parallel()
	var e engines
	if e.get() != nil {
		t.Error("there is an engine")
	}
	engine, made := e.orMake()
	again, twice := e.orMake()
	if !made || twice || engine != again || e.get() != engine {
		t.Error("there are two engines")
	}
	if err := e.use(engine); err != nil {
		t.Error(err)
	}
	other := flow.NewEngine(flow.EngineOptions{})
	for _, bad := range []*flow.Engine{nil, other} {
		if err := e.use(bad); err == nil {
			t.Error("the engine is replaced")
		}
	}
	for _, e := range []*flow.Engine{engine, other} {
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestRoster: a controller counts among the parts that know their rights, and results are copies.
func TestRoster(t *testing.T) {
	t.Parallel()
	var r roster
	errCheck := errors.New("of a check")
	r.addCheck(func() error { return errCheck })
	secrets := rights.Of(corev1.SchemeGroupVersion.WithKind("Secret"), "get")
	r.addNeeds([]rights.Right{secrets})
	ctl := &reconcile.Controller{}
	r.addController(ctl)
	needs, askers := r.rights()
	if len(needs) != 1 || len(askers) != 1 || askers[0] != rights.Asker(ctl) {
		t.Errorf("the rights are %v, and %d parts know some", needs, len(askers))
	}
	if checks := r.pendingChecks(); len(checks) != 1 || !errors.Is(checks[0](), errCheck) {
		t.Errorf("there are %d checks", len(checks))
	}
	controllers := r.overseen()
	if len(controllers) != 1 || controllers[0] != ctl {
		t.Fatalf("there are %d controllers", len(controllers))
	}
	controllers[0] = nil
	if r.overseen()[0] != ctl {
		t.Error("a caller has changed the roster")
	}
}

// TestRegistrations: a cluster with the name of another one does not remove the other one's metrics.
func TestRegistrations(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metric := func() prometheus.Collector { return prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"}) }
	to := prometheus.WrapRegistererWith(prometheus.Labels{"cluster": "a"}, registry)
	first, second := registrations{to: to}, registrations{to: to}
	if err := first.register(metric()); err != nil {
		t.Fatal(err)
	}
	if err := second.register(metric()); err == nil {
		t.Error("the metric is registered twice")
	}
	second.unregister()
	if all, err := registry.Gather(); err != nil || len(all) != 1 {
		t.Errorf("the second cluster has removed the metric of the first: %v, %v", all, err)
	}
	first.unregister()
	if all, err := registry.Gather(); err != nil || len(all) != 0 {
		t.Errorf("the metrics are not removed: %v, %v", all, err)
	}
}

// TestConnectionPart: a connection without a configuration is an error, and the end of a context cancels discovery.
func TestConnectionPart(t *testing.T) {
	t.Parallel()
	none := func(...prometheus.Collector) error { return nil }
	var c connection
	if err := c.connect(nil, "", options{}, none); err == nil || len(c.stores()) > 0 {
		t.Errorf("without a configuration: %v", err)
	}
	c.close()
	o := options{logger: quiet}
	o.complete()
	if err := c.connect(&rest.Config{Host: "http://127.0.0.1:1"}, "a", o, none); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	canceled := make(chan struct{})
	abandon := c.abandon
	c.abandon = func() {
		abandon()
		close(canceled)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := c.during(ctx, func() error {
		cancel()
		<-canceled
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the call returned %v", err)
	}
	c.abandon = abandon
}

// TestKindNamed checks the names of kinds that a question may use, without a watched store.
func TestKindNamed(t *testing.T) {
	t.Parallel()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	for _, tc := range []struct {
		name, group string
		want        string // "" for an error
		namespaced  bool
	}{
		{"Deployment", "apps", "Deployment.v1.apps", true},
		{"deployments", "", "Deployment.v1.apps", true},
		{"deployments.apps", "", "Deployment.v1.apps", true},
		{"Deployment.apps/v1", "", "Deployment.v1.apps", true},
		{"Node.v1", "", "Node.v1.", false},
		{"Deployment.v1", "", "", false}, // the core group has no such kind
		{"gadgets", "", "", false},
	} {
		got, err := kindNamed(nil, mapper, why.Object{Kind: tc.name, Group: tc.group})
		if tc.want == "" {
			if err == nil {
				t.Errorf("%q is %v", tc.name, got)
			}
			continue
		}
		text := got.Kind + "." + got.Version + "." + got.Group
		if err != nil || text != tc.want || got.namespaced != tc.namespaced {
			t.Errorf("%q of %q is %s, namespaced %t, error %v", tc.name, tc.group, text, got.namespaced, err)
		}
	}
}
