package store

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/shard"
)

// intake fills a store from its sources: it makes one sink for each scope, and applies what the sinks receive to the
// base. It owns the sinks and their coverages, which the writer lock guards.
type intake struct {
	opt       *Options
	pub       *publisher
	codec     *codec
	order     *order
	coverages coverages
	overlay   *overlay
	ledger    *ledger
	waits     waitingCallers

	live  atomic.Pointer[source.Source] // the source, if a Cache made both
	sinks map[string]*scope             // by namespace; "" is all namespaces
	marks uint32                        // lists that have begun
	board statusBoard
	stats counters
}

// waitingCallers are told what they may wait for. The callers of these methods hold the writer lock.
type waitingCallers interface {
	// notify is called after a change of the root or of a coverage.
	notify()
	// refuse ends the waits for the server's state of a scope, because the server refuses to list it.
	refuse(cov *coverage, err error)
	// reset ends all waits for a scope, because the server's history went back.
	reset(cov *coverage, err error)
	// survey returns the surveys of a new scope, and drop ends them.
	survey(cov *coverage) *surveys
	drop(v *surveys)
}

// counters count since the store was made.
type counters struct {
	applied, suppressed, commits, quarantined atomic.Int64
}

// scope implements source.Sink for one namespace, or for all of them.
type scope struct {
	*coverage
	in      *intake
	surveys *surveys
	listing *replacement // the list that is being received; guarded by the writer lock
}

// Sink returns the sink that a source fills for one scope: a namespace, or "" for all. Calls for one scope come
// one after the other.
func (in *intake) Sink(namespace string) source.Sink {
	in.pub.lock()
	defer in.pub.unlock()
	sc := in.sinks[namespace]
	if sc == nil {
		cov := &coverage{ns: namespace, order: in.order}
		cov.status.Namespace = namespace
		sc = &scope{coverage: cov, in: in, surveys: in.waits.survey(cov)}
		in.sinks[namespace], in.coverages[namespace] = sc, cov
	}
	return sc
}

// DropScope removes a scope that is not watched any more, with its objects, own writes and write windows. Subscribers
// get inferred deletions. Sink may add the namespace again.
func (in *intake) DropScope(namespace string) {
	in.pub.lock()
	sc := in.sinks[namespace]
	if sc == nil {
		in.pub.unlock()
		return
	}
	sc.dropped = true
	delete(in.sinks, namespace)
	delete(in.coverages, namespace)
	in.waits.drop(sc.surveys)
	cur := in.pub.current()
	next := root{base: cur.base.copy()}
	e := &trie.Edit{}
	var batch []change
	for r := range cur.base.inScope(namespace) {
		next.base.delete(e, r)
		batch = append(batch, change{typ: Deleted, inferred: true, relist: true, obj: r, prior: r})
		in.codec.superseded(r)
	}
	if st := sc.status; st.Phase != "" && st.Phase != source.Stopped { // its last report comes too late
		st.Phase, st.Reason, st.Message, st.Err, st.Since = source.Stopped, source.ReasonEnded, "", nil, time.Now()
		in.board.send(st)
	}
	in.overlay.dropScope(namespace)
	in.ledger.dropScope(namespace)
	next.merged = in.overlay.rebuild(next.base)
	batch = append(batch, in.checkSynced()...)
	wake := in.pub.publish(next, batch)
	in.waits.notify()
	in.pub.unlock()
	wake()
}

// Leave removes an object as if its slot had left, for a store that no source fills.
func (in *intake) Leave(k Key) {
	in.pub.lock()
	cur := in.pub.current()
	prior, ok := cur.base.get(in.codec.intern.hashOf(k), k)
	if !ok {
		in.pub.unlock()
		return
	}
	next := root{base: cur.base.copy()}
	next.base.delete(nil, prior)
	in.overlay.forget(k)
	next.merged = in.overlay.rebuild(next.base)
	wake := in.pub.publish(next, []change{{typ: Left, relist: true, obj: prior, prior: prior}})
	in.codec.superseded(prior)
	in.pub.unlock()
	wake()
}

// checkSynced returns the Synced note when the store has just become synced. The caller holds the writer lock and
// publishes the note.
func (in *intake) checkSynced() (batch []change) {
	if in.pub.isSynced() || !in.coverages.areComplete() {
		return nil
	}
	in.pub.setSynced()
	return []change{{typ: Synced, note: &note{version: in.coverages.version()}}}
}

// report records the status of a scope.
func (in *intake) report(cov *coverage, st source.Status) {
	in.pub.lock()
	st.Namespace = cov.ns
	cov.status = st
	cov.resuming = cov.resuming && !st.Synced
	if err := cov.refusal(); err != nil {
		in.waits.refuse(cov, err)
	}
	wake := func() {}
	if !cov.dropped {
		in.board.send(st)
		if batch := in.checkSynced(); batch != nil {
			wake = in.pub.publish(*in.pub.current(), batch)
		}
	}
	in.pub.unlock()
	wake()
}

// Quarantined returns the objects that could not be read and have not been replaced by readable ones.
func (in *intake) Quarantined() []source.Quarantined {
	in.pub.lock()
	defer in.pub.unlock()
	return in.coverages.quarantined()
}

// Version returns the resource version up to which the store knows all changes: the lowest of all scopes, and "" until
// each scope was listed once.
func (in *intake) Version() string {
	in.pub.lock()
	defer in.pub.unlock()
	return in.coverages.version()
}

// Covered reports whether the store can answer reads of all objects of a namespace that its labels and fields select.
// "" means all namespaces, or cluster-scoped objects. Without Options.Shard it is always true. In a store of some
// slots, the slot of the namespace must be held and listed. Slots come and go: ask before a read and after it.
func (in *intake) Covered(namespace string) bool {
	if in.opt.Shard == "" {
		return true
	}
	in.pub.lock()
	defer in.pub.unlock()
	cov := in.coverages.of(namespace)
	return cov != nil && cov.share != nil && cov.share.covers(namespace, in.opt.Namespaced)
}

// Lacks reports whether an object is of a slot that the store does not hold (Options.Shard), so that its absence from
// the store proves no deletion. It is also true if the slot cannot be determined and not all slots are held.
func (in *intake) Lacks(namespace string, uid types.UID) bool {
	if in.opt.Shard == "" {
		return false
	}
	in.pub.lock()
	defer in.pub.unlock()
	cov := in.coverages.of(namespace)
	return cov == nil || cov.share == nil || cov.share.misses(namespace, uid)
}

// Held returns the slots whose objects the store holds. ok is false for a store of all objects, and before a source has
// reported slots.
func (in *intake) Held() (held shard.Set, ok bool) {
	in.pub.lock()
	defer in.pub.unlock()
	for _, cov := range in.coverages {
		if cov.share != nil {
			return cov.share.held, true
		}
	}
	return shard.Set{}, false
}

// Statuses returns the status of each scope, ordered by namespace. For a store of a Cache, contact times, version and
// counters are current. For other stores they are those of the last change of status.
func (in *intake) Statuses() []source.Status {
	live := map[string]source.Status{}
	if from := in.live.Load(); from != nil {
		for _, st := range (*from).Status() {
			live[st.Namespace] = st
		}
	}
	in.pub.lock()
	defer in.pub.unlock()
	out := make([]source.Status, 0, len(in.coverages))
	for ns, cov := range in.coverages {
		st := cov.status
		st.Namespace = ns
		if now, ok := live[ns]; ok {
			st.LastContact, st.LastRefusal, st.Next = now.LastContact, now.LastRefusal, now.Next
			st.Version, st.Counters = now.Version, now.Counters
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b source.Status) int { return strings.Compare(a.Namespace, b.Namespace) })
	return out
}

// WatchStatus returns a watch of the statuses. The present statuses come first. Close the watch after use.
func (in *intake) WatchStatus() *StatusWatch {
	in.pub.lock()
	defer in.pub.unlock() // no change may come in between
	var present []source.Status
	for _, cov := range in.coverages {
		if cov.status.Phase != "" {
			present = append(present, cov.status)
		}
	}
	return in.board.watch(present)
}

// saved returns the base and the versions of the listed scopes that belong to it.
func (in *intake) saved() (base *state, scopes []savedScope) {
	in.pub.lock() // the versions must match the state
	defer in.pub.unlock()
	for ns, cov := range in.coverages {
		if cov.committed {
			scopes = append(scopes, savedScope{ns, cov.version.String()})
		}
	}
	return in.pub.current().base, scopes
}

// coverageOf returns the scope of a key, and its object if that could not be read. watched is false if no scope has the
// key.
func (in *intake) coverageOf(k Key) (scope string, unread *source.Quarantined, watched bool) {
	in.pub.lock()
	defer in.pub.unlock()
	cov := in.coverages.of(k.Namespace)
	if cov == nil {
		return "", nil, false
	}
	if q, ok := cov.quarantine[k]; ok {
		unread = &q
	}
	return cov.ns, unread, true
}

// isWatched reports whether a scope has a sink.
func (in *intake) isWatched(namespace string) bool {
	in.pub.lock()
	defer in.pub.unlock()
	return in.sinks[namespace] != nil
}
