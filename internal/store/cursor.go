package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/trie"
)

// From is where a subscriber starts.
type From uint8

const (
	// FromSnapshot gives every existing object as Added, with Initial, and then all changes. It is the default.
	FromSnapshot From = iota
	// FromNow gives only later changes.
	FromNow
)

// SubscribeOptions configure a cursor. The zero value selects all events.
type SubscribeOptions struct {
	Name string // for logs, metrics and lag reports
	From From
	// Filter selects objects. It must depend on the record alone. An object that starts or ceases to match is given as
	// Added or Deleted. Take calls Filter without any lock held. A panic counts as false for that record.
	Filter func(*Record) bool
	// Wake is called, without any lock held, when events arrive after a Take that returned none. It must not block.
	// Several goroutines may call it, and a call may be spurious.
	Wake func()
	// Resync is the period in which every object is given again as Sync, spread evenly. 0 disables it.
	Resync time.Duration
	// HoldWrites names the writer (WriteContext.Owner) whose echoes this cursor does not get; see ledger.go.
	HoldWrites string
	// HoldDeletes makes a deletion by that writer an echo, too. Without it the cursor gets every deletion.
	HoldDeletes bool
	// PrimaryOf returns the WriteContext.Primary that an object belongs to. If nil, each object is its own primary. ok
	// is false for an object with no primary or several, whose events are never taken for echoes.
	PrimaryOf func(*Record) (primary Key, ok bool)
}

// Cursor is the position of one subscriber in the change log. It has no goroutine: its owner calls Next, or calls Take
// after Wake.
//
// Events come in the order of the log, and those of one key in the order of its versions. A call of Take or Next
// confirms that the consumer has handled the events given before. Synced comes only after that. Close, Lag and Name are
// safe for concurrent use. The other methods must be called by one goroutine at a time.
type Cursor struct {
	s    *subscriptions
	opt  SubscribeOptions
	echo *echoFilter // nil: the subscriber gets all echoes

	mu       sync.Mutex // guards pos, late
	pos      position
	late     pending
	read     atomic.Uint64 // pos.seq, for readers without the lock
	settled  atomic.Uint64 // up to here changes were judged to be echoes or not
	closed   atomic.Bool
	armed    atomic.Bool
	pull     atomic.Pointer[puller] // of a consumer that waits; made on first use
	starter  starter                // started by a wake, instead of Wake; may be nil
	initial  *initial               // nil if all initial objects were given, or none are wanted
	synced   bool                   // the store was synced at the start, so Synced follows the initial objects
	done     bool                   // Synced has been given
	count    int                    // number of initial objects given
	*buffers                        // nil after a Take that returned no events
	over     []Event                // for the next Take
	resync   resyncer
}

// starter is what a wake starts: a Drainer.
type starter interface{ Start() }

// initial is the state at the time of the subscription.
type initial struct {
	objects trie.Walk[*Record, recordKeys]
	unread  []source.Quarantined // quarantined objects
}

// puller is the state of a consumer that waits for events on its own goroutine.
type puller struct {
	woken chan struct{}
	queue []Event // taken, but not returned by Next yet
}

// buffers are the scratch space of a Take. The cursors of a store share them, since most cursors are idle most of the
// time.
type buffers struct {
	out []Event
	raw []rawItem
}

// Name returns SubscribeOptions.Name.
func (c *Cursor) Name() string { return c.opt.Name }

// Lag returns the number of changes that have not been taken. Folded changes count once per key. It is 0 once the
// cursor is closed.
func (c *Cursor) Lag() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pos.chunk == nil {
		return 0
	}
	return c.late.len() + int(c.s.pub.seq.Load()-c.pos.seq)
}

// Close ends the subscription. It can be called at any time, also by the subscriber's own handler.
func (c *Cursor) Close() {
	if c.closed.Swap(true) {
		return
	}
	c.s.remove(c)
	c.leaveLog()
	c.signal()
}

// leaveLog releases the log and the folded changes. A reference to a closed cursor would otherwise keep each later
// change in memory.
func (c *Cursor) leaveLog() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pos.chunk, c.late = nil, pending{}
}

// drop releases the events of a closed cursor that were not taken. Only the consumer may call it.
func (c *Cursor) drop() { c.initial, c.over = nil, nil }

// end ends the subscription of a store that is closed.
func (c *Cursor) end() {
	c.closed.Store(true)
	c.signal()
}

// wantsResync reports whether the subscriber wants all objects again, periodically.
func (c *Cursor) wantsResync() bool { return c.opt.Resync > 0 }

// waiting returns the puller of the cursor, and makes it on first use.
func (c *Cursor) waiting() *puller {
	if p := c.pull.Load(); p != nil {
		return p
	}
	c.pull.CompareAndSwap(nil, &puller{woken: make(chan struct{}, 1)})
	return c.pull.Load()
}

// signal wakes a consumer that waits.
func (c *Cursor) signal() {
	if p := c.pull.Load(); p != nil {
		select {
		case p.woken <- struct{}{}:
		default: // a wake is pending already
		}
	}
}

// wake tells the consumer that there may be events. The caller holds no lock of the store.
func (c *Cursor) wake() {
	if !c.armed.Swap(false) {
		return
	}
	c.signal()
	begin := c.opt.Wake
	if c.starter != nil {
		begin = c.starter.Start
	}
	if begin == nil {
		return
	}
	if p := protect.Call(begin); p != nil {
		c.s.logger.Error("a subscriber's wake function panicked", "subscriber", c.opt.Name, "panic", p.Value)
	}
}

// Next returns the next event. It blocks until there is one, ctx is done or the cursor is closed.
func (c *Cursor) Next(ctx context.Context) (Event, error) {
	p := c.waiting()
	for {
		if len(p.queue) > 0 {
			e := p.queue[0]
			p.queue = p.queue[1:]
			return e, nil
		}
		if c.closed.Load() {
			return Event{}, fmt.Errorf("cannot read from subscriber %q: %w", c.opt.Name, ErrClosed)
		}
		if p.queue = c.Take(defaultBatch); len(p.queue) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		case <-p.woken:
		}
	}
}

// defaultBatch is the default number of events to take at once.
const defaultBatch = 64

// Take returns up to max events without blocking. It returns none if none are available or the cursor is closed. The
// slice is valid until the next call. Call Take until it returns no events, then wait for Wake.
func (c *Cursor) Take(max int) []Event {
	if c.buffers == nil {
		c.buffers = c.s.buffers.Get().(*buffers)
	}
	clear(c.out)
	c.out = c.out[:0]
	if c.closed.Load() {
		c.putBuffers()
		c.drop()
		return nil
	}
	c.out = append(c.out, c.over...)
	c.over = nil
	for len(c.out) == 0 && !c.closed.Load() {
		c.fill(max)
		if len(c.out) > 0 {
			break
		}
		c.armed.Store(true)
		if !c.available() || !c.armed.CompareAndSwap(true, false) {
			break
		}
	}
	if len(c.out) > max { // a delta yields up to two events
		c.over = append(c.over, c.out[max:]...)
		c.out = c.out[:max]
	}
	if len(c.out) == 0 {
		c.putBuffers()
		return nil
	}
	return c.out
}

func (c *Cursor) putBuffers() {
	c.s.buffers.Put(c.buffers)
	c.buffers = nil
}

// available reports whether a Take may return events.
func (c *Cursor) available() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.over) > 0 || !c.late.empty() || c.initial != nil || c.synced && !c.done {
		return true
	}
	p := c.pos
	return p.next() != nil || c.echo != nil && c.echo.canRelease() || !c.echo.isHolding() && c.resync.due(c)
}

// rawItem is an entry that is read under the lock and judged outside of it.
type rawItem struct {
	change *change
	delta  *delta
}

// fill appends events to c.out: initial objects, then folded changes, then the log, then a resync.
func (c *Cursor) fill(max int) {
	if c.initial != nil {
		c.fillInitial(max)
		return
	}
	if c.synced && !c.done {
		c.out = append(c.out, c.syncedEvent("")) // in a Take of its own, after the initial objects were handled
		return
	}
	if c.echo != nil {
		c.echo.release(func() bool { return len(c.out) >= max }, c.deliverDelta)
		if !c.echo.isHolding() {
			c.settled.Store(c.read.Load())
		}
	}
	for len(c.out) < max && !c.closed.Load() {
		if !c.readRaw(max - len(c.out)) {
			break
		}
		for i := range c.raw {
			c.deliver(&c.raw[i])
		}
		clear(c.raw)
		c.raw = c.raw[:0]
		if n := len(c.out); n > 0 && c.out[n-1].Type == Synced {
			return
		}
	}
	if len(c.out) == 0 {
		c.fillResync(max)
	}
}

func (c *Cursor) fillInitial(max int) {
	for len(c.out) < max {
		r, ok := c.initial.objects.Next()
		if !ok {
			for i := range c.initial.unread {
				c.out = append(c.out, quarantinedEvent(&c.initial.unread[i]))
			}
			c.initial = nil
			return
		}
		if c.wants(r) {
			c.count++
			c.out = append(c.out, Event{Type: Added, Key: r.Key(), Object: r, Initial: true})
		}
	}
}

func (c *Cursor) syncedEvent(version string) Event {
	c.done = true
	if version == "" {
		version = c.s.version()
	}
	return Event{Type: Synced, Version: version, Count: c.count}
}

// readRaw moves up to max entries into c.raw and reports whether it has any. It stops before Synced, which must begin a
// batch.
func (c *Cursor) readRaw(max int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.raw) < max && !c.late.empty() {
		it := c.late.front()
		if it.note != nil && it.note.typ == Synced && (len(c.raw) > 0 || len(c.out) > 0) {
			return len(c.raw) > 0
		}
		c.raw = append(c.raw, rawItem{change: it.note, delta: it.d})
		c.late.pop()
	}
	for len(c.raw) < max {
		peek := c.pos
		ch := peek.next()
		if ch == nil || ch.typ == Synced && (len(c.raw) > 0 || len(c.out) > 0) {
			break
		}
		c.pos = peek
		c.raw = append(c.raw, rawItem{change: ch})
	}
	c.read.Store(c.pos.seq)
	return len(c.raw) > 0
}

// fold moves the oldest entries of the log into one delta per key, until at most left are unread. The writer calls it.
func (c *Cursor) fold(left uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.s.pub.seq.Load()-c.pos.seq > left {
		ch := c.pos.next()
		if ch == nil {
			break
		}
		c.late.fold(ch)
	}
	c.read.Store(c.pos.seq)
}

// deliver turns an entry into events.
func (c *Cursor) deliver(it *rawItem) {
	switch {
	case it.delta != nil:
		if c.echo == nil || !c.echo.addDelta(it.delta) {
			c.deliverDelta(it.delta)
		}
	case it.change.obj == nil:
		c.deliverNote(it.change)
	case c.echo == nil:
		c.deliverChange(it.change)
	default:
		due, pass := c.echo.add(it.change)
		if due != nil {
			c.deliverDelta(due)
		}
		if pass {
			c.deliverChange(it.change)
		}
	}
}

func (c *Cursor) deliverNote(ch *change) {
	switch ch.typ {
	case Synced:
		if !c.done {
			c.emit(c.syncedEvent(ch.note.version))
		}
	case Epoch:
		c.emit(Event{Type: Epoch, Reason: ch.note.reason, Version: ch.note.version})
	case QuarantinedObject:
		c.emit(quarantinedEvent(ch.note.quarantine))
	}
}

func quarantinedEvent(q *source.Quarantined) Event {
	return Event{
		Type: QuarantinedObject, Key: Key{q.Namespace, q.Name}, UID: types.UID(q.UID), Version: q.Version,
		Err: q.Err,
	}
}

func (c *Cursor) deliverDelta(d *delta) {
	for {
		e, some, last := d.take(c.wants)
		if some {
			c.emit(e)
		}
		if last {
			return
		}
	}
}

func (c *Cursor) deliverChange(ch *change) {
	obj, prior := ch.obj, ch.prior
	if c.opt.Filter != nil {
		now := ch.typ != Deleted && ch.typ != Left && c.wants(obj)
		had := prior != nil && c.wants(prior)
		switch {
		case ch.typ == Deleted && prior == nil:
			if !c.wants(obj) {
				return
			}
		case !now && !had:
			return
		case now && !had:
			c.emit(Event{Type: Added, Key: obj.Key(), Object: obj, Initial: ch.initial})
			return
		case had && !now && ch.typ != Left:
			c.emit(Event{Type: Deleted, Key: obj.Key(), Object: obj, Prior: prior, Inferred: ch.inferred})
			return
		}
	}
	c.emit(Event{Type: ch.typ, Key: obj.Key(), Object: obj, Prior: prior, Initial: ch.initial, Inferred: ch.inferred})
}

func (c *Cursor) emit(e Event) {
	switch {
	case e.Type != Added:
		e.Initial = false
	case !c.done:
		c.count++
		e.Initial = true
	} // later ones are initial if they came with a slot
	c.out = append(c.out, e)
}

// wants calls the filter. No lock is held.
func (c *Cursor) wants(r *Record) (ok bool) {
	if c.opt.Filter == nil {
		return true
	}
	if p := protect.Call(func() { ok = c.opt.Filter(r) }); p != nil {
		c.s.logger.Error("a subscriber's filter panicked", "subscriber", c.opt.Name, "key", r.Key(), "panic", p.Value)
		return false
	}
	return ok
}
