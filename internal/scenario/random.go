package scenario

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/watchtest"
	"github.com/fairlead-io/fairlead/observe"
)

// random is a schedule of all supported actions and faults, drawn from a seed.
type random struct {
	*Run
	rnd    *rand.Rand
	keys   int
	holds  []*apiserver.Hold
	subs   []Subscriber
	scoped bool // the run changes the namespaces of the subject
	log    []string
}

// Random plays the schedule of a seed: writes, deletes, re-creations, faults, compactions, rollbacks and outages,
// subscribers that join, leave, block and panic, and changes of namespaces and selectors. The seed also chooses
// between HTTP/1.1 and HTTP/2, JSON and protobuf, with or without WatchList. At the end Random waits until the server
// is at rest and checks every invariant.
//
// Random must be called in a bubble of testing/synctest. The returned log describes the schedule. The subject logs to
// logger, which may be nil.
func Random(subject Subject, seed uint64, steps int, logger *slog.Logger) (res Result, log []string) {
	r := &random{rnd: rand.New(rand.NewPCG(seed, 0xfa1e)), keys: 12}
	wires := Wires()[:2]
	s := Scenario{Name: fmt.Sprint("seed ", seed), Fill: r.rnd.IntN(30)}
	s.Server = func(o *apiserver.Options) {
		o.NoWatchList, o.NoInconsistentContinue = r.rnd.IntN(4) == 0, r.rnd.IntN(2) == 0
	}
	s.Config = func(c *Config) {
		c.PageSize, c.NoWatchList, c.Protobuf = 1+r.rnd.IntN(9), r.rnd.IntN(4) == 0, r.rnd.IntN(2) == 0
		jitter := &lockedRand{rnd: rand.New(rand.NewPCG(seed, 2))}
		c.Rand, c.Logger = jitter.Float64, logger
		switch r.rnd.IntN(5) {
		case 0:
			c.Namespaces, r.scoped = []string{"ns", "b"}, true
		case 1:
			c.Labels = "app=a"
		}
		if r.rnd.IntN(3) == 0 {
			c.Resync = time.Duration(1+r.rnd.IntN(20)) * time.Minute
		}
	}
	s.Before = func(run *Run) {
		r.Run = run
		for range r.rnd.IntN(3) {
			r.fault()
		}
	}
	s.Script = func(run *Run) {
		r.subs = []Subscriber{run.Main}
		r.Sync()
		if !r.scoped {
			// Inject one empty list. A cache may believe two in a row, or one before it has any object.
			run.Server.On(apiserver.Match{Verb: "list", Nth: 1 + r.rnd.IntN(20), Func: func(apiserver.Request) bool {
				return len(run.Cache.Cached()) > 0
			}}, apiserver.EmptyList())
		}
		for range steps {
			r.step()
			time.Sleep(time.Duration(r.rnd.Int64N(int64(30 * time.Second)))) //nolint:forbidigo // on the fake clock
		}
		r.calm()
		r.note("at rest")
		for ns := range r.namespaces() {
			run.Until("the condition of namespace "+ns+" is Watching",
				func() bool { return run.statusOf(ns).Reason == source.ReasonWatching })
		}
	}
	res = s.Play(subject, wires[r.rnd.IntN(2)])
	return res, r.log
}

// lockedRand is a source of random numbers for several goroutines.
type lockedRand struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (l *lockedRand) Float64() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rnd.Float64()
}

func (r *random) note(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf("%s revision %d: %s", time.Now().Format(time.TimeOnly), r.Server.Revision(),
		fmt.Sprintf(format, args...)))
}

func (r *random) namespaces() map[string]bool {
	out := map[string]bool{}
	for _, ns := range r.Cfg.Namespaces {
		out[ns] = true
	}
	if len(out) == 0 {
		out[""] = true
	}
	return out
}

// calm ends all faults and makes the server writable again.
func (r *random) calm() {
	r.Server.ClearFaults()
	for _, h := range r.holds {
		h.Release()
	}
	r.holds = nil
	if err := r.Server.Up(); err != nil {
		panic(err)
	}
	for _, s := range r.subs {
		s.Unblock()
	}
	r.put()
	// A fault stays with the watch that met it, so this takes at most the longest lifetime of a watch.
	r.catchUp()
}

func (r *random) catchUp() {
	if !r.Within("the cache has what the server has", time.Hour, r.AtRest) {
		r.note("server and cache: %q", watchtest.Difference(r.want(), r.Cache.Cached()))
	}
}

func (r *random) put() {
	ns := []string{"ns", "ns", "b", "c"}[r.rnd.IntN(4)]
	r.PutIn(ns, fmt.Sprint("o", r.rnd.IntN(r.keys)), fmt.Sprint(r.rnd.IntN(1000)),
		map[string]string{"app": []string{"a", "a", "b"}[r.rnd.IntN(3)]})
}

func (r *random) pick() (ns, name string, ok bool) {
	all, err := r.Server.Objects(ConfigMaps)
	if err != nil || len(all) == 0 {
		return "", "", false
	}
	o := all[r.rnd.IntN(len(all))]
	return o.GetNamespace(), o.GetName(), true
}

func (r *random) step() {
	switch n := r.rnd.IntN(100); {
	case n < 34:
		for range 1 + r.rnd.IntN(5) {
			r.put()
		}
	case n < 44:
		if ns, name, ok := r.pick(); ok {
			r.remove(ns, name)
		}
	case n < 52:
		if ns, name, ok := r.pick(); ok {
			r.remove(ns, name)
			r.PutIn(ns, name, "again", map[string]string{"app": "a"})
		}
	case n < 57:
		r.note("compact")
		r.Server.Compact(0)
	case n < 62:
		r.note("connections break")
		r.Server.DropConnections()
	case n < 65:
		r.outage()
	case n < 78:
		r.fault()
	case n < 81:
		r.note("events are held")
		r.holds = append(r.holds, r.Server.HoldEvents(apiserver.Match{Verb: "watch"}))
	case n < 84:
		for _, h := range r.holds {
			h.Release()
		}
		r.holds = nil
	case n < 93:
		r.subscribers()
	case n < 95:
		r.rollback()
	case n < 97:
		r.rescope()
	case n < 98:
		for _, w := range r.Server.Watches(watches) {
			w.BookmarkAt("0") // this version carries no information
		}
	default:
		r.Elsewhere()
		r.Server.Bookmark(apiserver.Match{})
	}
}

func (r *random) remove(ns, name string) {
	if err := r.Server.Remove(ConfigMaps, ns, name); err != nil {
		panic(err)
	}
}

func (r *random) outage() {
	r.note("the server is down")
	r.Server.Down()
	for range r.rnd.IntN(5) {
		r.put()
	}
	if r.rnd.IntN(2) == 0 {
		r.Server.Compact(0)
	}
	time.Sleep(time.Duration(r.rnd.IntN(180)) * time.Second) //nolint:forbidigo // on the fake clock
	if err := r.Server.Up(); err != nil {
		panic(err)
	}
}

func (r *random) fault() {
	verb := []string{"list", "watch", ""}[r.rnd.IntN(3)]
	m := apiserver.Match{Verb: verb, Resource: "configmaps", Times: 1 + r.rnd.IntN(3)}
	faults := Faults(r.rnd)
	if r.rnd.IntN(12) == 0 {
		m.Times, faults = 1, []apiserver.Fault{apiserver.Lagging(max(2, r.Server.Revision()-uint64(1+r.rnd.IntN(8))))}
	}
	r.note("%d faults for the next %d of verb %q", len(faults), m.Times, verb)
	r.Server.On(m, faults...)
}

// Faults draws one or two faults for a request.
func Faults(rnd *rand.Rand) []apiserver.Fault {
	all := []apiserver.Fault{
		apiserver.Answer(apiserver.Expired()), apiserver.Answer(apiserver.Gone()),
		apiserver.Answer(apiserver.TooManyRequests(2)),
		apiserver.Answer(apiserver.VersionTooLarge(1)), apiserver.Answer(apiserver.StoreReadError()),
		apiserver.Answer(apiserver.Failure(500)),
		apiserver.Answer(apiserver.Failure(401)), apiserver.Answer(apiserver.Failure(403)),
		apiserver.Answer(apiserver.Failure(404)),
		apiserver.Answer(apiserver.Failure(504)), apiserver.HTML(502), apiserver.HTML(200), apiserver.Text(503, "upstream"),
		apiserver.Table(), apiserver.DuplicateItems(), apiserver.NoListVersion(), apiserver.ExpireContinue(true),
		apiserver.ExpireContinue(false),
		apiserver.GoAway(), apiserver.Silent(), apiserver.NoBookmarks(), apiserver.IgnoreTimeout(),
		apiserver.EndAfter(rnd.IntN(4)),
		apiserver.ErrorEvent(rnd.IntN(3), apiserver.Expired()), apiserver.ErrorEvent(rnd.IntN(3), apiserver.Failure(500)),
		apiserver.ErrorEvent(1, apiserver.StoreReadError()), apiserver.ErrorEvent(0, apiserver.TooManyRequests(1)),
		apiserver.DuplicateEvents(), apiserver.ReplayEvents(3), apiserver.NoInitialEventsEnd(),
		apiserver.PlainInitialEventsEnd(),
		apiserver.IgnoreWatchList(), apiserver.Delay(3 * time.Second), apiserver.Drop(), apiserver.BlackHole(),
		apiserver.Respond(503, "text/plain", "later", "Retry-After", "99999999999999999999"), apiserver.Cut(rnd.Int64N(3000)),
		apiserver.Fragment(1, 7, 100), apiserver.Drip(300, 4*time.Second),
	}
	picked := []apiserver.Fault{all[rnd.IntN(len(all))]}
	if rnd.IntN(3) == 0 {
		picked = append(picked, all[rnd.IntN(len(all))])
	}
	return picked
}

func (r *random) subscribers() {
	switch n := r.rnd.IntN(5); {
	case n == 4 && len(r.subs) < 6:
		r.observe()
	case n == 0 && len(r.subs) < 6:
		r.note("a subscriber joins")
		r.subs = append(r.subs, r.Join(fmt.Sprint("late ", len(r.log))))
	case n == 1 && len(r.subs) > 1:
		r.note("a subscriber leaves")
		i := 1 + r.rnd.IntN(len(r.subs)-1)
		gone := r.subs[i]
		gone.Leave()
		r.subs = append(r.subs[:i:i], r.subs[i+1:]...)
		for j, s := range r.others {
			if s == gone {
				r.others = append(r.others[:j:j], r.others[j+1:]...)
				break
			}
		}
		if _, found := gone.Recording().Check(); len(found) > 0 {
			r.Fail("before it left: %v", found[0])
		}
	case n == 2:
		r.note("a subscriber is blocked")
		r.subs[r.rnd.IntN(len(r.subs))].Block()
	default:
		for _, s := range r.subs {
			s.Unblock()
		}
	}
}

// rollback restores an older state. Until the subject has noticed that, the new history must not exceed the highest
// version that it has seen, because no client could detect the rollback then.
func (r *random) rollback() {
	for _, s := range r.subs { // blocked subscribers stay blocked during the rollback
		if r.rnd.IntN(2) == 0 {
			s.Block()
		}
	}
	r.Server.ClearFaults()
	for _, h := range r.holds {
		h.Release()
	}
	r.holds = nil
	r.catchUp()
	r.Server.Bookmark(apiserver.Match{})
	r.Pass(time.Second)
	// A watch that has not received all events before the rollback would miss the same versions of the new history,
	// and no client could detect that. Drop the watches then, as a real server does: it has no watches after a
	// restore.
	broken := r.rnd.IntN(3) == 0 || r.seen(false) < r.Server.Revision()
	to := r.Server.Revision() - min(r.Server.Revision()-2, uint64(1+r.rnd.IntN(30)))
	if err := r.Server.Rollback(to); err != nil {
		return // the history is compacted at that version
	}
	r.note("history was rolled back to %d", to)
	if broken {
		r.Server.DropConnections()
	}
	r.Within("the rollback is noticed", time.Hour, func() bool {
		return r.AtRest() && r.seen(true) <= r.Server.Revision()
	})
}

// seen returns the highest or the lowest version that the scopes of the subject have seen.
func (r *random) seen(highest bool) (version uint64) {
	first := true
	for ns := range r.namespaces() {
		var n uint64
		_, _ = fmt.Sscan(r.statusOf(ns).Version, &n)
		if first || highest == (n > version) {
			version = n
		}
		first = false
	}
	return version
}

// observe adds a handler that panics at random, but not twice in a row for a key.
func (r *random) observe() {
	c, ok := r.Cache.(Observing)
	if !ok {
		return
	}
	var options []observe.Option
	if limit := r.rnd.IntN(5); limit > 0 {
		options = append(options, observe.Async(limit))
	}
	r.note("a handler joins that panics, with %d options", len(options))
	panics := &lockedRand{rnd: rand.New(rand.NewPCG(r.rnd.Uint64(), 3))}
	var panicked sync.Map // keys of events that will be handled again
	s := c.Observe(fmt.Sprint("panics ", len(r.log)), func(e watchtest.Event) {
		if _, again := panicked.LoadAndDelete(e.Key); !again && panics.Float64() < 0.3 {
			panicked.Store(e.Key, true)
			panic("now and then")
		}
	}, options...)
	r.subs, r.others = append(r.subs, s), append(r.others, s)
}

func (r *random) rescope() {
	c, ok := r.Cache.(Rescoper)
	if ok && r.Cfg.Labels != "" {
		r.Cfg.Labels = []string{"app=a", "app=b", "app in (a,b)"}[r.rnd.IntN(3)]
		r.note("selector becomes %s", r.Cfg.Labels)
		c.SetLabels(r.Cfg.Labels)
		return
	}
	if !ok || !r.scoped {
		return
	}
	set := [][]string{{"ns"}, {"ns", "b"}, {"b", "c"}, {"ns", "b", "c"}}[r.rnd.IntN(4)]
	r.note("namespaces become %v", set)
	c.SetNamespaces(set...)
	r.Cfg.Namespaces = set
}
