package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/shard"
)

// parts are parts of a store that are built alone: no Store, no source.
type parts struct {
	pub     publisher
	codec   codec
	scopes  coverages
	order   order
	overlay overlay
}

func newParts(t *testing.T) *parts {
	p := &parts{scopes: coverages{}}
	p.pub.init()
	p.codec.init(&Options{}, func(func(*pack.Item) bool) {})
	t.Cleanup(p.codec.pack.Close)
	p.scopes[""] = &coverage{order: &p.order}
	p.overlay.init(0, p.codec.intern, &p.order, p.scopes)
	return p
}

// record makes a version of the object "a/x".
func (p *parts) record(t *testing.T, uid, version string) *Record {
	t.Helper()
	raw := fmt.Sprintf(`{"metadata":{"namespace":"a","name":"x","uid":%q,"resourceVersion":%q}}`, uid, version)
	r, err := p.codec.parse(source.JSON, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// bring applies a version from the watch to the base and the overlay.
func (p *parts) bring(t *testing.T, uid, version string) {
	t.Helper()
	p.pub.lock()
	defer p.pub.unlock()
	cur, rec := p.pub.current(), p.record(t, uid, version)
	prior, _ := cur.base.objects.Find(rec)
	next := root{base: cur.base.copy()}
	next.base.set(nil, staged{rec: rec})
	next.merged = p.overlay.applied(cur, next.base, staged{rec: rec}, prior)
	p.scopes[""].advance(rec.ver)
	p.pub.publish(next, nil)
}

// lose applies a deletion from the watch.
func (p *parts) lose(t *testing.T, uid, version string) {
	t.Helper()
	p.pub.lock()
	defer p.pub.unlock()
	cur, rec := p.pub.current(), p.record(t, uid, version)
	prior, _ := cur.base.objects.Find(rec)
	next := root{base: cur.base.copy()}
	next.base.delete(nil, rec)
	next.merged = p.overlay.removed(cur, next.base, rec, prior)
	p.scopes[""].advance(rec.ver)
	p.pub.publish(next, nil)
}

var keyX = Key{"a", "x"}

// shown is the version that reads see, "" if they see no object.
func (p *parts) shown() string {
	r, ok := p.pub.current().merged.get(p.codec.intern.hashOf(keyX), keyX)
	if !ok {
		return ""
	}
	return r.Version()
}

func (p *parts) hasOverlay() bool { r := p.pub.current(); return r.base != r.merged }

// TestOverlayAlone: the merged state shows an answer until the base has it or a newer version. It hides a deleted
// incarnation until the base has lost it.
func TestOverlayAlone(t *testing.T) {
	t.Parallel()
	type step func(*testing.T, *parts)
	bring := func(uid, version string) step { return func(t *testing.T, p *parts) { p.bring(t, uid, version) } }
	lose := func(uid, version string) step { return func(t *testing.T, p *parts) { p.lose(t, uid, version) } }
	answer := func(uid, version string, in bool) step {
		return func(t *testing.T, p *parts) {
			p.pub.publish(p.overlay.answer(p.pub.current(), staged{rec: p.record(t, uid, version)}, in), nil)
		}
	}
	deleted := func(uid types.UID, want bool) step {
		return func(t *testing.T, p *parts) {
			next, ok := p.overlay.deleted(p.pub.current(), p.scopes[""], keyX, uid)
			if ok != want {
				t.Fatalf("a deletion of %q has an effect: %v", uid, ok)
			}
			if ok {
				p.pub.publish(next, nil)
			}
		}
	}
	absent := func(version string, want bool) step {
		return func(t *testing.T, p *parts) {
			next, ok := p.overlay.absent(p.pub.current(), p.scopes[""], keyX, parseVersion(version))
			if ok != want {
				t.Fatalf("that the object is absent at %s has an effect: %v", version, ok)
			}
			if ok {
				p.pub.publish(next, nil)
			}
		}
	}
	for _, tc := range []struct {
		reason string
		steps  []step
		shown  string
		over   bool // an entry remains
	}{
		{"an answer is shown", []step{bring("u", "5"), answer("u", "7", true)}, "7", true},
		{"an older event does not replace it", []step{bring("u", "5"), answer("u", "7", true), bring("u", "6")}, "7", true},
		{"its own event replaces it", []step{bring("u", "5"), answer("u", "7", true), bring("u", "7")}, "7", false},
		{"a newer event replaces it", []step{bring("u", "5"), answer("u", "7", true), bring("u", "8")}, "8", false},
		{"a later deletion ends it", []step{bring("u", "5"), answer("u", "7", true), lose("u", "9")}, "", false},
		{"an earlier deletion does not", []step{bring("u", "5"), lose("u", "6"), answer("v", "8", true)}, "8", true},
		{"an object that left the selector is hidden", []step{bring("u", "5"), answer("u", "7", false)}, "", true},
		{"the deletion of the visible object", []step{bring("u", "5"), deleted("", true)}, "", true},
		{"a deletion of no object", []step{deleted("", false)}, "", false},
		{"a second deletion", []step{bring("u", "5"), deleted("u", true), deleted("u", false)}, "", true},
		{
			"a deletion that the watch has brought first",
			[]step{bring("u", "5"), lose("u", "6"), deleted("u", false)},
			"",
			false,
		},
		{"a late creation is hidden", []step{deleted("u", true), bring("u", "5")}, "", true},
		{"the next incarnation is shown", []step{bring("u", "5"), deleted("u", true), bring("v", "8")}, "8", false},
		{"the server does not have it", []step{bring("u", "5"), absent("7", true)}, "", true},
		{"the server did not have it earlier", []step{bring("u", "5"), absent("4", false)}, "5", false},
		{"it came back", []step{bring("u", "5"), absent("7", true), bring("v", "8")}, "8", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			p := newParts(t)
			for _, s := range tc.steps {
				s(t, p)
			}
			if got := p.shown(); got != tc.shown || p.hasOverlay() != tc.over || (len(p.overlay.entries) > 0) != tc.over {
				t.Errorf("version %q is shown, want %q; %d entries, merged is separate: %v", got, tc.shown,
					len(p.overlay.entries), p.hasOverlay())
			}
		})
	}
}

// TestOverlayOfLists: a list that began after an answer settles it. An object that only the overlay had is a ghost.
func TestOverlayOfLists(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	next := p.overlay.answer(p.pub.current(), staged{rec: p.record(t, "u", "7")}, true)
	p.pub.publish(next, nil)
	base := p.pub.current().base
	if got := p.overlay.listed("", nil, p.overlay.tick(), parseVersion("6"), base, base); got != nil || !p.hasOverlay() {
		t.Errorf("after an older list: %v", got)
	}
	got := p.overlay.listed("", nil, p.overlay.tick(), parseVersion("9"), base, base)
	if len(got) != 1 || got[0].Version() != "7" || p.overlay.rebuild(base) != base {
		t.Errorf("after a newer list: %v", got)
	}
}

// upstream is a server of the test.
type upstream struct {
	reached error
	asked   []string
	ended   int // writes
}

func (u *upstream) surveyor(string) *source.Surveyor { return nil }

func (u *upstream) reach(_ context.Context, _ string, ver version) error {
	u.asked = append(u.asked, ver.String())
	return u.reached
}

func (u *upstream) judged() map[string]uint64 { return nil }

func (u *upstream) answered(string) { u.ended++ }

func newOwnWrites(p *parts, up *upstream) *ownWrites {
	o := &ownWrites{pub: &p.pub, codec: &p.codec, coverages: p.scopes, server: up, readers: up, opt: &Options{}}
	o.selector = &currentSelector{codec: &p.codec, opt: o.opt}
	o.selector.SetSelectors(source.Selectors{})
	o.overlay.init(0, p.codec.intern, &p.order, p.scopes)
	o.ledger.init()
	return o
}

// TestOwnWritesAlone: a put answers with its effect, and a rollback during a write makes its answer useless.
func TestOwnWritesAlone(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	up := &upstream{}
	o := newOwnWrites(p, up)
	raw := func(version string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"namespace":"a","name":"x","uid":"u","resourceVersion":%q}}`, version)
	}
	for _, tc := range []struct {
		version string
		want    PutResult
	}{{"5", Overlaid}, {"5", AlreadyKnown}, {"4", AlreadyKnown}, {"", Unversioned}, {"6", Overlaid}} {
		if got, err := o.Put(source.JSON, raw(tc.version)); got != tc.want || err != nil {
			t.Errorf("Put of version %q: %v, %v; want %v", tc.version, got, err, tc.want)
		}
	}
	if p.shown() != "6" || o.OverlayStats().Entries != 1 {
		t.Errorf("shown is %q, %+v", p.shown(), o.OverlayStats())
	}
	w := o.BeginWrite(keyX, WriteContext{Owner: "me", Primary: keyX, Create: true})
	if !o.ledger.inFlight(keyX, "me") {
		t.Error("the write is not in flight")
	}
	o.overlay.dropScope("")
	if got, err := w.Done(source.JSON, raw("7")); got != NeedsBarrier || err != nil {
		t.Errorf("after a rollback: %v, %v", got, err)
	}
	if up.ended != 1 || o.ledger.inFlight(keyX, "me") || len(o.ledger.windows) > 0 {
		t.Error("the write is recorded after a rollback")
	}
	delete(p.scopes, "")
	if got := o.PutDeleted(keyX, "u"); got != OutOfScope {
		t.Errorf("of an object that is not watched: %v", got)
	}
}

// TestSettleAlone: Settle relies on the watch. If the watch does not help and there is no source to ask, readers must
// ask the server. This ends when the scope has reached the version, or after the bound.
func TestSettleAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, up := newParts(t), &upstream{}
		o := newOwnWrites(p, up)
		if err := o.Settle(t.Context(), keyX, "7"); err != nil || o.Overdue(keyX) || !slices.Equal(up.asked, []string{"7"}) {
			t.Errorf("the watch has it: %v, asked for %v", err, up.asked)
		}
		up.reached = errors.New("late")
		if err := o.Settle(t.Context(), keyX, "7"); err == nil || !o.Overdue(keyX) {
			t.Errorf("the watch does not have it: %v", err)
		}
		p.scopes[""].advance(parseVersion("7"))
		if o.Overdue(keyX) {
			t.Error("overdue although the scope has the version")
		}
		o.Doubt(keyX)
		if !o.Overdue(keyX) || !slices.Equal(o.OverlayStats().Overdue, []Key{keyX}) {
			t.Errorf("not in doubt: %+v", o.OverlayStats())
		}
		<-time.After(defaultOverlayBound + time.Second)
		if o.Overdue(keyX) {
			t.Error("in doubt after the bound")
		}
	})
}

// TestCoverageOfVersions: versions up to the known state are old. Versions without order are compared only for
// equality.
func TestCoverageOfVersions(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	at := func(version string) *Record { return p.record(t, "u", version) }
	for _, tc := range []struct {
		reason         string
		scope, version string
		prior          *Record
		deleted, want  bool
	}{
		{"first change", "", "5", nil, false, false},
		{"replay of an unknown object", "7", "5", nil, false, true},
		{"newer unknown object", "7", "8", nil, false, false},
		{"known object, older than the scope but newer than itself", "7", "6", at("5"), false, false},
		{"known object again", "7", "5", at("5"), false, true},
		{"deletion at the version of the object", "7", "5", at("5"), true, false},
		{"deletion of an earlier incarnation", "7", "4", at("5"), true, true},
		{"no version", "7", "", at("5"), false, false},
		{"opaque", "x", "y", nil, false, false},
		{"opaque and equal", "x", "y", at("y"), false, true},
	} {
		c := &coverage{order: &order{}}
		c.advance(parseVersion(tc.scope))
		if got := c.isOld(parseVersion(tc.version), tc.prior, tc.deleted); got != tc.want {
			t.Errorf("%s: %v", tc.reason, got)
		}
	}
}

// TestCoverageOfSlots: a scope covers a namespace once its slot is held and listed. Slots that left are missed at once.
func TestCoverageOfSlots(t *testing.T) {
	t.Parallel()
	layout := shard.Layout{By: shard.Namespace, Slots: 2}
	one := layout.Set(layout.SlotOf("a", ""))
	c := &coverage{order: &order{}}
	c.hold(layout.Set())
	if !c.vacant() || !c.isComplete() || !c.share.lacks("a") {
		t.Error("without slots there is nothing to list, and no object is held")
	}
	c.hold(one)
	if c.isComplete() || c.share.covers("a", true) || c.share.lacks("a") || c.share.misses("a", "u") {
		t.Error("a new slot is held, but not listed")
	}
	c.listed(&one, parseVersion("7"))
	c.committed = true
	if !c.isComplete() || !c.share.covers("a", true) || c.share.covers("", true) || !c.share.has(one) {
		t.Error("a listed slot covers its namespaces, not all")
	}
	c.hold(layout.Set())
	if c.share.covers("a", true) || !c.share.misses("a", "u") {
		t.Error("a slot that has left")
	}
}

// TestWaitsAlone: a wait ends when the coverage has the version, when the server refuses the scope, and with ErrClosed.
func TestWaitsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newParts(t)
		cov := p.scopes[""]
		cov.committed = true
		w := &waits{
			pub: &p.pub, overlay: &p.overlay, coverages: p.scopes, intern: p.codec.intern, logger: p.codec.logger,
			opt: &Options{}, hasSource: func() bool { return true }, surveys: map[string]*surveys{},
		}
		w.survey(cov)
		errs := make(chan error, 1)
		wait := func(f func(context.Context) error) {
			go func() { errs <- f(t.Context()) }()
			synctest.Wait()
			if len(errs) > 0 {
				t.Fatalf("it does not wait: %v", <-errs)
			}
		}
		locked := func(f func()) error {
			w.pub.lock()
			f()
			w.notify()
			w.pub.unlock()
			return <-errs
		}
		seven := func(ctx context.Context) error { return w.WaitFor(ctx, "7") }
		wait(seven)
		if err := locked(func() { cov.advance(parseVersion("7")) }); err != nil || !w.Covers("a", "7") || w.Covers("a", "8") {
			t.Errorf("at version 7: %v", err)
		}
		if err := seven(t.Context()); err != nil {
			t.Errorf("a wait for a reached version: %v", err)
		}
		wait(w.Barrier)
		if err := locked(func() { w.end(errNoName, func(w *waiter) bool { return w.barrier }) }); !errors.Is(err, errNoName) {
			t.Errorf("the end of barriers: %v", err)
		}
		wait(func(ctx context.Context) error { return w.WaitForNamespace(ctx, "a", "9") })
		if err := locked(func() { w.pub.close(); w.close() }); !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
		if err := seven(t.Context()); err != nil { // it needs no wait
			t.Error(err)
		}
		if err := w.WaitFor(t.Context(), "8"); !errors.Is(err, ErrClosed) {
			t.Errorf("a wait after close: %v", err)
		}
		w.running.Wait()
	})
}

// TestPublisherAlone: readers are never ahead of the sequence. An edit keeps equal base and merged states equal. The
// channel is closed with the root that made the store synced.
func TestPublisherAlone(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	p.pub.lock()
	defer p.pub.unlock()
	p.pub.editBoth(func(*state) {})
	if p.hasOverlay() {
		t.Error("an edit has separated equal states")
	}
	cur := p.pub.current()
	p.pub.publish(root{base: cur.base, merged: cur.base.copy()}, []change{{typ: Epoch, note: &note{}}})
	edits := 0
	p.pub.editBoth(func(*state) { edits++ })
	if !p.hasOverlay() || edits != 2 || p.pub.current().seq != 1 || p.pub.seq.Load() != 1 {
		t.Errorf("%d edits, at %d of %d", edits, p.pub.current().seq, p.pub.seq.Load())
	}
	p.pub.synced = true
	if p.pub.HasSynced() {
		t.Error("synced before the root is visible")
	}
	p.pub.publishBase()
	if !p.pub.HasSynced() || p.hasOverlay() {
		t.Error("not synced, or the merged state is still separate")
	}
}

// TestEchoFilterAlone: a filter holds back the changes of a key while a write is in flight. Afterwards it drops the
// echo of the write, and delivers all changes as one if any of them is foreign.
func TestEchoFilterAlone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		versions []string // of the changes while the write is in flight; the base of the write is 5
		answer   string   // "": the write fails
		deleted  bool     // a deletion follows
		want     []string // the delivered versions
	}{
		{"the echo of the write", []string{"6"}, "6", false, nil},
		{"the write failed", []string{"6"}, "", false, []string{"6"}},
		{"a foreign change before the write", []string{"6", "7"}, "7", false, []string{"7"}},
		{"a foreign change after the write", []string{"6", "7"}, "6", false, []string{"7"}},
		{"a deletion is not held", []string{"6"}, "", true, []string{"6"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			p := newParts(t)
			l := &ledger{}
			l.init()
			f := &echoFilter{ledger: l, owner: "me", keys: map[Key]*held{}}
			prior := p.record(t, "u", "5")
			w := &WriteContext{Owner: "me", Primary: keyX, Base: prior}
			l.begin(keyX, w)
			var got []string
			deliver := func(d *delta) {
				for last := false; !last; {
					var e Event
					var some bool
					if e, some, last = d.take(func(*Record) bool { return true }); some {
						got = append(got, e.Object.Version())
					}
				}
			}
			for _, v := range tc.versions {
				next := p.record(t, "u", v)
				if due, pass := f.add(&change{typ: Modified, obj: next, prior: prior}); due != nil || pass {
					t.Fatalf("version %s is delivered while the write is in flight", v)
				}
				prior = next
			}
			if f.release(func() bool { return false }, deliver); f.canRelease() || !f.isHolding() || got != nil {
				t.Fatalf("released while the write is in flight: %q", got)
			}
			if tc.deleted {
				due, pass := f.add(&change{typ: Deleted, obj: prior, prior: prior})
				if due == nil || pass {
					t.Fatal("a deletion is held")
				}
				deliver(due)
			}
			if tc.answer != "" {
				l.record(w, p.record(t, "u", tc.answer))
			}
			l.end(keyX, w)
			if f.canRelease() == tc.deleted {
				t.Error("there is nothing to release, or there still is after a deletion")
			}
			f.release(func() bool { return false }, deliver)
			if !slices.Equal(got, tc.want) || f.isHolding() {
				t.Errorf("delivered %q, want %q; still holding: %v", got, tc.want, f.isHolding())
			}
		})
	}
}

// callers are those that wait for an intake of the test.
type callers struct{ notified, refused, dropped int }

func (c *callers) notify()                       { c.notified++ }
func (c *callers) refuse(*coverage, error)       { c.refused++ }
func (c *callers) reset(*coverage, error)        {}
func (c *callers) survey(cov *coverage) *surveys { return &surveys{cov: cov} }
func (c *callers) drop(*surveys)                 { c.dropped++ }

// TestIntakeAlone: a sink applies new changes, counts old ones, and notifies waiting callers.
func TestIntakeAlone(t *testing.T) {
	t.Parallel()
	p, waits := newParts(t), &callers{}
	delete(p.scopes, "")
	l := &ledger{}
	l.init()
	in := &intake{
		opt: &Options{Namespaced: true}, pub: &p.pub, codec: &p.codec, order: &p.order, coverages: p.scopes,
		overlay: &p.overlay, ledger: l, waits: waits, sinks: map[string]*scope{},
	}
	sink := in.Sink("a")
	apply := func(typ source.ChangeType, ns, version string) error {
		raw := fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":"x","uid":"u","resourceVersion":%q}}`, ns, version)
		o := &source.Object{Raw: raw}
		if err := source.Scan(source.JSON, raw, &o.Header); err != nil {
			t.Fatal(err)
		}
		return sink.Apply(typ, o)
	}
	for _, tc := range []struct {
		typ         source.ChangeType
		ns, version string
		err         error
		shown       string
	}{
		{source.Added, "a", "5", nil, "5"},
		{source.Modified, "a", "7", nil, "7"},
		{source.Modified, "a", "6", nil, "7"}, // replayed
		{source.Deleted, "a", "6", nil, "7"},  // of an earlier incarnation
		{source.Modified, "b", "8", errForeignNS, "7"},
		{source.Deleted, "a", "9", nil, ""},
		{source.Added, "a", "8", nil, ""}, // from before the deletion
	} {
		if err := apply(tc.typ, tc.ns, tc.version); !errors.Is(err, tc.err) || p.shown() != tc.shown {
			t.Errorf("%v of version %s: %v; shown is %q, want %q", tc.typ, tc.version, err, p.shown(), tc.shown)
		}
	}
	if n := in.stats.applied.Load(); n != 3 || in.stats.suppressed.Load() != 3 || in.stats.quarantined.Load() != 1 {
		t.Errorf("%d changes are applied, %d suppressed", n, in.stats.suppressed.Load())
	}
	if waits.notified != 3 || in.Version() != "9" {
		t.Errorf("waiting callers are notified %d times, the version is %q", waits.notified, in.Version())
	}
	sink.Report(source.Status{Phase: source.Degraded, Reason: source.ReasonForbidden})
	if st := in.Statuses(); waits.refused != 1 || len(st) != 1 || st[0].Reason != source.ReasonForbidden {
		t.Errorf("after a refusal: %+v", st)
	}
	if err := apply(source.Added, "a", "10"); err != nil || p.shown() != "10" {
		t.Errorf("%v; shown is %q", err, p.shown())
	}
	in.DropScope("a")
	if err := apply(source.Modified, "a", "11"); err != nil || p.shown() != "" || waits.dropped != 1 || in.isWatched("a") {
		t.Errorf("of a dropped scope: %v, %q is shown", err, p.shown())
	}
}

// TestClaimsOfFiles: a file belongs to one store at a time. Its next owner waits for the last save of the previous one.
func TestClaimsOfFiles(t *testing.T) {
	t.Parallel()
	var none *saver
	opt := CacheOptions{Config: &rest.Config{Host: "https://cluster"}, SaveEvery: time.Hour, Logger: slog.Default()}
	if v, err := newSaver(&opt); v != none || err != nil || v.claim(&Store{}, nil) != nil {
		t.Errorf("without a directory: %v, %v", v, err)
	}
	opt.Dir = t.TempDir()
	v, err := newSaver(&opt)
	if err != nil {
		t.Fatal(err)
	}
	stores := func(o Options) *Store {
		s := New(o)
		t.Cleanup(s.Close)
		return s
	}
	if v.claim(stores(Options{Shard: "by namespace"}), nil) != nil {
		t.Error("a store of some slots has a claim")
	}
	first := v.claim(stores(Options{}), nil)
	if first == nil || v.claim(stores(Options{}), nil) != nil {
		t.Error("two stores have claims to one file")
	}
	if other := v.claim(stores(Options{LabelSelector: "a=b"}), nil); other == nil {
		t.Error("another file is in use, too")
	}
	if !first.isFree(t.Context()) {
		t.Error("a new file is not free")
	}
	first.end()
	next := v.claim(stores(Options{}), nil)
	ended, end := context.WithCancel(t.Context())
	end()
	if next == nil || next.isFree(ended) {
		t.Fatal("the file is free before the last save of its previous owner")
	}
	first.release()
	if !next.isFree(t.Context()) || v.claim(stores(Options{}), nil) != nil {
		t.Error("the next owner does not have the file")
	}
	next.end()
	next.release()
	if v.claim(stores(Options{}), nil) == nil {
		t.Error("the file is not released")
	}
}
