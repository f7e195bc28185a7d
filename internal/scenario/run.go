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

// Scenario is a test of one behaviour.
type Scenario struct {
	Name string
	// Section and Holds are the heading and the sentence of the design that the scenario checks.
	Section, Holds string
	// Fill is the number of ConfigMaps at the start: ns/o0, ns/o1, … in revisions from 2.
	Fill   int
	Server func(*apiserver.Options)
	Config func(*Config)
	// Before runs before the subject starts.
	Before func(*Run)
	Script func(*Run)
	// Unsettled says that the cache need not equal the server at the end.
	Unsettled bool
	// Untimed says that the scenario needs no fake clock and also runs on real connections.
	Untimed bool
}

// Wire is a connection between the subject and the server.
type Wire struct {
	Name string
	// Real says that the wire uses the network and the real clock. Otherwise the run belongs in a bubble of
	// testing/synctest.
	Real bool
	opts apiserver.Options
}

// Wires returns all wires.
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

// Request matches for rules and for the request log.
var (
	lists   = apiserver.Match{Verb: "list", Resource: "configmaps"}
	watches = apiserver.Match{Verb: "watch", Resource: "configmaps"}
	// watchLists are watches that ask for initial events, plainWatches those that do not.
	watchLists = apiserver.Match{Verb: "watch", Resource: "configmaps", Func: func(r apiserver.Request) bool {
		return r.Query.Get("sendInitialEvents") == "true"
	}}
	plainWatches = apiserver.Match{Verb: "watch", Resource: "configmaps", Func: func(r apiserver.Request) bool {
		return r.Query.Get("sendInitialEvents") != "true"
	}}
	// syncs are the requests for the whole content: WatchLists, and lists except probes for one object.
	syncs = apiserver.Match{Resource: "configmaps", Func: func(r apiserver.Request) bool {
		return r.Verb == "list" && r.Query.Get("limit") != "1" && r.Page <= 1 ||
			r.Verb == "watch" && r.Query.Get("sendInitialEvents") == "true"
	}}
	everything = apiserver.Match{Resource: "configmaps"}
)

func times(m apiserver.Match, n int) apiserver.Match { m.Times = n; return m }

// Run is a running scenario.
type Run struct {
	Server *apiserver.Server
	Cache  Instance
	Main   Subscriber // subscribed from the start
	Cfg    Config

	wire     Wire
	requests atomic.Int64
	astray   atomic.Bool // connections go to another server
	problems []string
	skipped  string
	others   []Subscriber
	hold     *apiserver.Hold
}

// Result is the result of a run.
type Result struct {
	// Problems are the failures of the subject.
	Problems []string
	// Skipped is the reason why the scenario does not apply to the subject, or empty.
	Skipped string
}

// OK reports whether the scenario ran and found no problem.
func (r Result) OK() bool { return r.Skipped == "" && len(r.Problems) == 0 }

// unsupported is the panic that ends a script which needs a feature that the subject lacks.
type unsupported struct{ what string }

// NotOffered is the error of Start for a Config that the subject does not support. The scenario is skipped.
type NotOffered string

func (e NotOffered) Error() string { return string(e) }

// Play runs the scenario. It must be called in a bubble of testing/synctest unless the wire is Real.
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

// storm is the number of requests after which brake delays each further one.
const storm = 3000

// brake delays the requests of a subject that retries without a pause. Without it the fake clock would never advance.
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

// end makes the checks that all scenarios share.
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
	// Report each invariant once.
	seen := map[string]int{}
	for _, v := range found {
		if seen[v.Invariant]++; seen[v.Invariant] == 1 {
			r.Fail("%s", v)
		}
	}
}

// want returns the state that the subject should have.
func (r *Run) want() map[string]watchtest.State {
	all, err := r.Server.Objects(ConfigMaps)
	if err != nil {
		return nil // the resource is not served any more
	}
	selector, err := labels.Parse(r.Cfg.Labels)
	if err != nil {
		panic(err) // a bug in the scenario
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

// Fail records a problem.
func (r *Run) Fail(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// Expect records a problem unless holds is true.
func (r *Run) Expect(holds bool, format string, args ...any) {
	if !holds {
		r.Fail(format, args...)
	}
}

// Pass advances the fake clock by d. It is only for runs in a bubble.
func (r *Run) Pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // on the fake clock
	synctest.Wait()
}

// Limits of Until, on the fake clock and on the real one.
const (
	patience     = 20 * time.Minute
	realPatience = 20 * time.Second
)

// Until waits until holds returns true, and records a problem if that takes too long. It reports whether holds
// returned true.
func (r *Run) Until(what string, holds func() bool) bool {
	return r.Within(what, patience, holds)
}

// Within is Until with another limit for runs in a bubble.
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

// wait pauses between two polls.
func wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// AtRest reports whether the cache equals the server.
func (r *Run) AtRest() bool { return maps.Equal(r.want(), r.Cache.Cached()) }

// Settled reports whether every subscriber has received the state of the server.
func (r *Run) Settled() bool {
	for _, sub := range append([]Subscriber{r.Main}, r.others...) {
		if folded, _ := sub.Recording().Check(); !maps.Equal(folded, r.want()) {
			return false
		}
	}
	return true
}

// Sync waits until the cache and all subscribers have the state of the server.
func (r *Run) Sync() bool {
	return r.Until("the cache has what the server has", r.AtRest) &&
		r.Until("the subscribers were given what the server has", r.Settled)
}

// Watching waits until n watches are open.
func (r *Run) Watching(n int) {
	r.Until("a watch is open", func() bool { return r.Server.Log().Open(watches) == n })
}

// Join adds a subscriber.
func (r *Run) Join(name string) Subscriber {
	s := r.Cache.Subscribe(name)
	r.others = append(r.others, s)
	return s
}

// Status returns the condition of the subject. The scenario fails for a subject without conditions.
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

// Condition waits until the subject reports a reason. The scenario fails for a subject without conditions.
func (r *Run) Condition(reason source.Reason) {
	if _, ok := r.Cache.Status(""); !ok {
		r.Fail("W9: no condition says %s", reason)
		return
	}
	r.Until("the condition is "+string(reason), func() bool { return r.Status().Reason == reason })
}

// Put stores the ConfigMap ns/name.
func (r *Run) Put(name, data string) { r.PutIn("ns", name, data, nil) }

// PutIn stores a ConfigMap.
func (r *Run) PutIn(ns, name, data string, labels map[string]string) {
	_, err := r.Server.Put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, Data: map[string]string{"v": data},
	})
	if err != nil {
		panic(err) // a bug in the script
	}
}

// Remove deletes the ConfigMap ns/name.
func (r *Run) Remove(name string) {
	if err := r.Server.Remove(ConfigMaps, "ns", name); err != nil {
		panic(err)
	}
}

// Elsewhere advances the server's version by a write to another resource.
func (r *Run) Elsewhere() {
	if _, err := r.Server.Put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"},
		StringData: map[string]string{"at": fmt.Sprint(r.Server.Revision())},
	}); err != nil {
		panic(err)
	}
}

// Expire compacts the history and ends the watches, so that their next request gets 410.
func (r *Run) Expire() {
	r.Elsewhere()
	r.Server.Compact(0)
	r.Server.DropConnections()
}

// Away takes the server off the network, calls fn to change objects, compacts the history and brings the server back.
func (r *Run) Away(fn func()) {
	r.Server.Down()
	fn()
	r.Elsewhere()
	r.Server.Compact(0)
	if err := r.Server.Up(); err != nil {
		panic(err)
	}
}

// Count returns the number of requests so far that match.
func (r *Run) Count(m apiserver.Match) int { return r.Server.Log().Count(m) }

// Events returns the events of the main subscriber so far.
func (r *Run) Events() []watchtest.Event { return r.Main.Recording().Events }

// Given counts the events of a type that the main subscriber has received, from the given index on.
func (r *Run) Given(typ store.EventType, from int) int {
	n := 0
	for _, e := range r.Events()[from:] {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// Changes returns the events about objects that the main subscriber has received, from the given index on.
func (r *Run) Changes(from int) []watchtest.Event {
	var out []watchtest.Event
	for _, e := range r.Events()[from:] {
		if e.Object != (watchtest.State{}) {
			out = append(out, e)
		}
	}
	return out
}

// rescoper returns the subject as a Rescoper, or ends the scenario.
func (r *Run) rescoper() Rescoper {
	c, ok := r.Cache.(Rescoper)
	if !ok {
		panic(unsupported{"cannot be re-scoped while it runs"})
	}
	return c
}
