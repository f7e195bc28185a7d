package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// Scenario is one behaviour, put to the test.
type Scenario struct {
	Name string
	// Section and Holds are the heading and the sentence of the design that it holds the subject to.
	Section, Holds string
	// Fill is how many ConfigMaps there are at the start: ns/o0, ns/o1, … in revisions from 2.
	Fill   int
	Server func(*apiserver.Options)
	Config func(*Config)
	// Before is run before the subject starts.
	Before func(*Run)
	Script func(*Run)
	// Unsettled says that the subject need not have what the server has at the end, because the script has seen to it.
	Unsettled bool
	// Untimed says that it works without a fake clock, on real connections.
	Untimed bool
}

// Wire is how the subject reaches the server.
type Wire struct {
	Name string
	// Real says that there is a network and a real clock; otherwise the run belongs into a bubble.
	Real bool
	opts apiserver.Options
}

// Wires are the ways to reach a server.
func Wires() []Wire {
	return []Wire{
		{Name: "HTTP/1.1 in memory", opts: apiserver.Options{Pipe: true}},
		{Name: "HTTP/2 in memory", opts: apiserver.Options{Pipe: true, HTTP2: true}},
		{Name: "HTTP/1.1 over TCP", Real: true},
		{Name: "HTTP/2 over TCP", Real: true, opts: apiserver.Options{HTTP2: true}},
	}
}

// ConfigMaps is the resource that scenarios watch.
var ConfigMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Matches for rules and logs.
var (
	lists   = apiserver.Match{Verb: "list", Resource: "configmaps"}
	watches = apiserver.Match{Verb: "watch", Resource: "configmaps"}
	// watchLists are watches that ask for their initial events, plainWatches those that do not.
	watchLists = apiserver.Match{Verb: "watch", Resource: "configmaps", Func: func(r apiserver.Request) bool {
		return r.Query.Get("sendInitialEvents") == "true"
	}}
	plainWatches = apiserver.Match{Verb: "watch", Resource: "configmaps", Func: func(r apiserver.Request) bool {
		return r.Query.Get("sendInitialEvents") != "true"
	}}
	// syncs are the requests that bring the whole content: lists, but no probes for one object, and WatchLists.
	syncs = apiserver.Match{Resource: "configmaps", Func: func(r apiserver.Request) bool {
		return r.Verb == "list" && r.Query.Get("limit") != "1" && r.Page <= 1 ||
			r.Verb == "watch" && r.Query.Get("sendInitialEvents") == "true"
	}}
	everything = apiserver.Match{Resource: "configmaps"}
)

func times(m apiserver.Match, n int) apiserver.Match { m.Times = n; return m }

// Run is one scenario under way.
type Run struct {
	Server *apiserver.Server
	Cache  Instance
	Main   Subscriber // there from the start
	Cfg    Config

	wire     Wire
	requests atomic.Int64
	astray   atomic.Bool // connections lead elsewhere
	problems []string
	skipped  string
	others   []Subscriber
	hold     *apiserver.Hold
}

// Result is what became of a run.
type Result struct {
	// Problems are the ways in which the subject failed; none: it holds.
	Problems []string
	// Skipped says why the scenario does not apply to the subject.
	Skipped string
}

// OK says that the subject holds.
func (r Result) OK() bool { return r.Skipped == "" && len(r.Problems) == 0 }

// unsupported ends a script that needs what the subject does not offer.
type unsupported struct{ what string }

// NotOffered is what Start returns for a Config that the subject has no way to follow: the scenario is skipped.
type NotOffered string

func (e NotOffered) Error() string { return string(e) }

// Play runs the scenario. With a wire that is not Real, it must be called in a bubble of testing/synctest.
func (s Scenario) Play(subject Subject, wire Wire) Result {
	opts := wire.opts
	if s.Server != nil {
		s.Server(&opts)
	}
	server, err := apiserver.New(opts)
	if err != nil {
		return Result{Problems: []string{err.Error()}}
	}
	defer server.Close()
	r := &Run{Server: server, wire: wire, Cfg: Config{Resource: ConfigMaps, PageSize: 500}}
	for i := range s.Fill {
		r.Put(fmt.Sprint("o", i), "0")
	}
	if s.Config != nil {
		s.Config(&r.Cfg)
	}
	r.Cfg.REST = server.Config()
	if s.Before != nil {
		s.Before(r)
	}
	r.brake()
	requests := &watchtest.OpenRequests{}
	requests.Wrap(r.Cfg.REST)
	if r.Cache, err = subject.Start(r.Cfg); err != nil {
		if not, ok := errors.AsType[NotOffered](err); ok {
			return Result{Skipped: string(not)}
		}
		return Result{Problems: []string{"cannot start: " + err.Error()}}
	}
	r.Main = r.Cache.Subscribe("main")
	r.script(s)
	if r.skipped == "" {
		r.end(s, requests)
	}
	r.Cache.Stop()
	if n := r.requests.Load(); n >= storm {
		r.Fail("W7: a storm of more than %d requests", storm)
	}
	if n := requests.Open(); n > 0 && r.skipped == "" {
		r.Fail("W8: %d requests are open after Stop", n)
	}
	return Result{Problems: r.problems, Skipped: r.skipped}
}

// storm is how many requests a scenario may cost.
const storm = 3000

// brake slows a subject down that asks without a pause: a fake clock would stand still meanwhile, for ever.
func (r *Run) brake() {
	r.Server.On(apiserver.Match{}, apiserver.Before(func(ctx context.Context, _ apiserver.Request) {
		if r.requests.Add(1) < storm {
			return
		}
		t := time.NewTimer(10 * time.Second)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}))
}

func (r *Run) script(s Scenario) {
	defer func() {
		if p := recover(); p != nil {
			u, ok := p.(unsupported)
			if !ok {
				panic(p)
			}
			r.skipped = u.what
		}
	}()
	if s.Script != nil {
		s.Script(r)
	}
}

// end is what every scenario checks.
func (r *Run) end(s Scenario, requests *watchtest.OpenRequests) {
	r.Server.ClearFaults()
	r.Main.Unblock()
	if !s.Unsettled {
		r.Until("the cache has what the server has", r.AtRest)
		r.Until("the subscribers were given what the server has", r.Settled)
	}
	found := requests.Check()
	server, cached := r.want(), r.Cache.Cached()
	for _, sub := range append([]Subscriber{r.Main}, r.others...) {
		rec := sub.Recording()
		if s.Unsettled {
			_, some := rec.Check()
			found = append(found, some...)
			continue
		}
		found = append(found, rec.CheckAtRest(server, cached)...)
	}
	// One line per invariant is enough.
	seen := map[string]int{}
	for _, v := range found {
		if seen[v.Invariant]++; seen[v.Invariant] == 1 {
			r.Fail("%s", v)
		}
	}
}

// want is what the subject should have.
func (r *Run) want() map[string]watchtest.State {
	all, err := r.Server.Objects(ConfigMaps)
	if err != nil {
		return nil // not served any more
	}
	selector, err := labels.Parse(r.Cfg.Labels)
	if err != nil {
		panic(err) // of our own making
	}
	out := map[string]watchtest.State{}
	for _, o := range all {
		if selector.Matches(labels.Set(o.GetLabels())) &&
			(len(r.Cfg.Namespaces) == 0 || slices.Contains(r.Cfg.Namespaces, o.GetNamespace())) {
			out[o.GetNamespace()+"/"+o.GetName()] = watchtest.State{UID: string(o.GetUID()), Version: o.GetResourceVersion()}
		}
	}
	return out
}

// Fail notes a problem.
func (r *Run) Fail(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// Expect notes a problem unless it is true.
func (r *Run) Expect(holds bool, format string, args ...any) {
	if !holds {
		r.Fail(format, args...)
	}
}

// Pass lets time pass. Only for runs in a bubble.
func (r *Run) Pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // on the fake clock
	synctest.Wait()
}

// patience is how long Until waits: of the bubble's time, or of real time.
const (
	patience     = 20 * time.Minute
	realPatience = 20 * time.Second
)

// Until waits until it holds, and notes a problem if that takes too long. It returns whether it holds.
func (r *Run) Until(what string, holds func() bool) bool {
	return r.Within(what, patience, holds)
}

// Within is Until with a limit for runs in a bubble.
func (r *Run) Within(what string, limit time.Duration, holds func() bool) bool {
	step, most := 20*time.Millisecond, 5*time.Second
	if r.wire.Real {
		limit, step, most = realPatience, 2*time.Millisecond, 50*time.Millisecond
	}
	for begin := time.Now(); ; step = min(step*5/4, most) {
		if !r.wire.Real {
			synctest.Wait()
		}
		if holds() {
			return true
		}
		if time.Since(begin) > limit || r.requests.Load() >= 2*storm {
			r.Fail("not within %s: %s", limit, what)
			return false
		}
		wait(step)
	}
}

// wait is a pause between two looks at something that sends no signal.
func wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// AtRest says that the cache has what the server has.
func (r *Run) AtRest() bool { return maps.Equal(r.want(), r.Cache.Cached()) }

// Settled says that every subscriber was given what the server has.
func (r *Run) Settled() bool {
	for _, sub := range append([]Subscriber{r.Main}, r.others...) {
		if folded, _ := sub.Recording().Check(); !maps.Equal(folded, r.want()) {
			return false
		}
	}
	return true
}

// Sync waits until cache and subscribers have what the server has.
func (r *Run) Sync() bool {
	return r.Until("the cache has what the server has", r.AtRest) &&
		r.Until("the subscribers were given what the server has", r.Settled)
}

// Watching waits until so many watches are open.
func (r *Run) Watching(n int) {
	r.Until("a watch is open", func() bool { return r.Server.Log().Open(watches) == n })
}

// Join adds a subscriber.
func (r *Run) Join(name string) Subscriber {
	s := r.Cache.Subscribe(name)
	r.others = append(r.others, s)
	return s
}

// Status is the subject's condition, for a subject that has one; otherwise the scenario fails.
func (r *Run) Status() source.Status {
	ns := ""
	if len(r.Cfg.Namespaces) > 0 {
		ns = r.Cfg.Namespaces[0]
	}
	return r.statusOf(ns)
}

func (r *Run) statusOf(ns string) source.Status {
	s, _ := r.Cache.Status(ns)
	return s
}

// Condition waits until the subject says what is wrong. A subject without conditions fails.
func (r *Run) Condition(reason source.Reason) {
	if _, ok := r.Cache.Status(""); !ok {
		r.Fail("W9: no condition says %s", reason)
		return
	}
	r.Until("the condition is "+string(reason), func() bool { return r.Status().Reason == reason })
}

// Put stores ns/name.
func (r *Run) Put(name, data string) { r.PutIn("ns", name, data, nil) }

// PutIn stores a ConfigMap.
func (r *Run) PutIn(ns, name, data string, labels map[string]string) {
	_, err := r.Server.Put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, Data: map[string]string{"v": data},
	})
	if err != nil {
		panic(err) // the script's mistake
	}
}

// Remove deletes ns/name.
func (r *Run) Remove(name string) {
	if err := r.Server.Remove(ConfigMaps, "ns", name); err != nil {
		panic(err)
	}
}

// Elsewhere moves the server's version by a write to another resource.
func (r *Run) Elsewhere() {
	if _, err := r.Server.Put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"},
		StringData: map[string]string{"at": fmt.Sprint(r.Server.Revision())},
	}); err != nil {
		panic(err)
	}
}

// Expire makes the history before now unavailable, and ends the watches, so that they meet 410.
func (r *Run) Expire() {
	r.Elsewhere()
	r.Server.Compact(0)
	r.Server.DropConnections()
}

// Away takes the server off the network while fn changes things, forgets the history, and brings it back.
func (r *Run) Away(fn func()) {
	r.Server.Down()
	fn()
	r.Elsewhere()
	r.Server.Compact(0)
	if err := r.Server.Up(); err != nil {
		panic(err)
	}
}

// Count returns how many requests so far match.
func (r *Run) Count(m apiserver.Match) int { return r.Server.Log().Count(m) }

// Events returns what the main subscriber was given so far.
func (r *Run) Events() []watchtest.Event { return r.Main.Recording().Events }

// Given counts events of a type that the main subscriber was given, from the nth event on.
func (r *Run) Given(typ store.EventType, from int) int {
	n := 0
	for _, e := range r.Events()[from:] {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// Changes returns the events about objects that the main subscriber was given from the nth event on.
func (r *Run) Changes(from int) []watchtest.Event {
	var out []watchtest.Event
	for _, e := range r.Events()[from:] {
		if e.Object != (watchtest.State{}) {
			out = append(out, e)
		}
	}
	return out
}

// rescoper is the subject's, or ends the scenario.
func (r *Run) rescoper() Rescoper {
	c, ok := r.Cache.(Rescoper)
	if !ok {
		panic(unsupported{"cannot be re-scoped while it runs"})
	}
	return c
}
