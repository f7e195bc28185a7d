package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// Drainer follows a store for one consumer. It takes the events of a subscriber in batches, hands each batch to a
// function, and owns wake-ups and closing. The contract:
//
//   - Order: the batches are those of [Cursor.Take]. A batch is handled before the next one is taken, so Synced comes
//     after the initial objects were handled.
//   - Concurrency: Consume is never called by two goroutines at once.
//   - Completeness: a wake during a drain makes the drainer take once more before it ends.
//   - Back-pressure: the drainer has no queue. The store folds the events that a slow consumer has not taken, per key.
//   - Goroutines: see DrainOptions.Owner and DrainOptions.Inline. With neither, the consumer calls Run or Step on its
//     own goroutine.
//   - End: when Consume returns false, the subscription is closed. After Close has returned, no goroutine starts and no
//     batch is taken. A running call of Consume is not interrupted.
//   - Failure: with Owner or Inline, a panic and runtime.Goexit close the subscription; see DrainOptions.Failed. In Run
//     and Step they reach the caller.
//
// An idle drainer has no goroutine. While there are drainers with an owner, a store has at most one idle goroutine for
// all of them. Start, Close and Lag are safe for concurrent use. Run and Step must be called by one goroutine at a
// time.
type Drainer struct {
	cursor   Cursor
	consumer Consumer
	owner    *sync.WaitGroup
	loop     func() // drain, made once so that a wake allocates nothing

	mu    sync.Mutex // guards phase
	phase drainPhase
	sated bool // Consume has returned false
	batch uint32
}

// drainPhase is the phase of a drainer with an owner or an inline one.
type drainPhase uint8

const (
	drainIdle  drainPhase = iota
	draining              // a goroutine drains
	drainAgain            // a goroutine drains, and must take once more
	drainOver             // closed: no goroutine drains from now on
)

// Consumer receives the events of a Drainer.
type Consumer interface {
	// Consume is DrainOptions.Consume.
	Consume(events []Event) (more bool)
	// Failed is DrainOptions.Failed.
	Failed(panicked error)
}

// functions implements Consumer with functions.
type functions struct {
	consume func([]Event) bool
	failed  func(error) // nil: log is called
	log     func(error)
}

// Consume implements Consumer.
func (f *functions) Consume(events []Event) (more bool) { return f.consume(events) }

// Failed implements Consumer.
func (f *functions) Failed(panicked error) {
	if f.failed != nil {
		f.failed(panicked)
	} else {
		f.log(panicked)
	}
}

// DrainOptions configure a Drainer. Only Consume or Consumer is required.
type DrainOptions struct {
	// SubscribeOptions select the events. Wake is called only if neither Owner nor Inline is set. It may be nil; see
	// Woken.
	SubscribeOptions
	// Consume handles a batch and reports whether it wants more. The slice is valid until Consume returns. Consume may
	// call Close.
	Consume func(events []Event) (more bool)
	// Batch is the maximum number of events per call of Consume. 0 means 64.
	Batch int
	// Owner, if set, counts the drains that run. When events arrive, a drain begins on a goroutine of the store. It ends
	// when all events are taken.
	Owner *sync.WaitGroup
	// Inline drains on the goroutine that wakes the drainer, which is the one that fills the store. Consume must not
	// block.
	Inline bool
	// Failed is called after a failure has closed the subscription. panicked is a panic of Consume, with value and
	// stack as text. It is nil if Consume or a filter has called runtime.Goexit. Failed is not called for a Goexit
	// after Close. If Failed is nil, the failure is logged.
	Failed func(panicked error)
	// Consumer replaces Consume and Failed. It takes fewer allocations where there are very many drainers.
	Consumer Consumer
}

// Drain adds a subscriber whose events are handed to a function. No events are taken before Start, Run or Step. Close
// the drainer after use.
func (s *subscriptions) Drain(opt DrainOptions) *Drainer {
	d := &Drainer{consumer: opt.Consumer, owner: opt.Owner, batch: defaultBatch}
	if d.consumer == nil {
		d.consumer = &functions{opt.Consume, opt.Failed, d.logFailure}
	}
	if opt.Batch > 0 {
		d.batch = uint32(min(opt.Batch, math.MaxUint32))
	}
	d.cursor.opt = opt.SubscribeOptions
	switch {
	case opt.Owner != nil:
		d.loop, d.cursor.starter = d.drain, d
		s.goroutines.add()
	case opt.Inline:
		d.cursor.starter = d
	case opt.Wake == nil:
		d.cursor.waiting()
	}
	s.subscribe(&d.cursor)
	return d
}

// Start drains if the drainer has an owner or is inline. If a drain is running, it takes once more before it ends. With
// an owner Start does not block; inline it drains before it returns.
func (d *Drainer) Start() {
	if d.begin() && d.owner == nil {
		d.drain()
	}
}

// begin makes the drainer busy and reports whether it was idle. With an owner it starts the drain.
func (d *Drainer) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.phase {
	case drainIdle:
		d.phase = draining
		if d.owner != nil {
			d.owner.Add(1) // under the lock: never after Close has returned
			d.cursor.s.goroutines.run(d.loop)
		}
		return true
	case draining:
		d.phase = drainAgain
	}
	return false
}

// rest ends a drain that has found no events, unless there was a wake meanwhile. It reports whether the drain is over.
func (d *Drainer) rest() (over bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.phase {
	case drainAgain:
		d.phase = draining
		return false
	case draining:
		d.phase = drainIdle
	}
	return true
}

// drain hands on all available events.
func (d *Drainer) drain() {
	if d.owner != nil {
		defer d.owner.Done()
	}
	if p := protect.CallOr(d.rounds, d.left); p != nil {
		d.fail(p)
	}
}

// rounds hands on batches until no events are left.
func (d *Drainer) rounds() {
	for d.next() || !d.rest() {
	}
}

// next hands on one batch. more is false if there was none, or the consumer wants no more.
func (d *Drainer) next() (more bool) {
	events := d.cursor.Take(int(d.batch))
	if len(events) == 0 {
		return false
	}
	if !d.consumer.Consume(events) {
		d.sated = true
		d.Close()
		d.cursor.drop()
		return false
	}
	return true
}

// left handles a runtime.Goexit of the consumer.
func (d *Drainer) left() {
	if !d.cursor.closed.Load() { // after Close the consumer ends its goroutine on purpose
		d.fail(nil)
	}
}

// fail closes a drainer after a panic of its consumer, or after runtime.Goexit if panicked is nil.
func (d *Drainer) fail(panicked *protect.Panic) {
	d.Close()
	if panicked != nil {
		d.consumer.Failed(panicked)
	} else {
		d.consumer.Failed(nil)
	}
}

// logFailure is the default of DrainOptions.Failed.
func (d *Drainer) logFailure(panicked error) {
	var p *protect.Panic
	if errors.As(panicked, &p) {
		d.cursor.s.logger.Error("a subscriber panicked", "subscriber", d.cursor.opt.Name,
			"panic", p.Value, "stack", string(p.Stack))
	} else {
		d.cursor.s.logger.Error("a subscriber ended its goroutine", "subscriber", d.cursor.opt.Name)
	}
}

// Step hands on one batch on the caller's goroutine and reports whether there may be more. After false, Wake is called
// or Woken receives when there is.
func (d *Drainer) Step() (more bool) {
	if d.cursor.armed.Load() { // the last Take returned no events, and none have come since
		return false
	}
	return d.next()
}

// Woken returns a channel that receives when Step may find events again. It is only for drainers without an owner,
// Inline and Wake.
func (d *Drainer) Woken() <-chan struct{} { return d.cursor.waiting().woken }

// Run hands on all events on the caller's goroutine, and waits for more. It returns nil when Consume wants no more, the
// cause of ctx when ctx is done, and ErrClosed when the subscription is closed. The subscription is closed when Run
// returns.
func (d *Drainer) Run(ctx context.Context) error {
	defer d.Close()
	for ctx.Err() == nil {
		if d.Step() {
			continue
		}
		if d.cursor.closed.Load() {
			if d.sated {
				return nil
			}
			return fmt.Errorf("cannot follow the store for subscriber %q: %w", d.cursor.opt.Name, ErrClosed)
		}
		select {
		case <-d.Woken():
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// Lag returns the number of changes that have not been taken. Folded changes count once per key. It is 0 once the
// drainer is closed.
func (d *Drainer) Lag() int { return d.cursor.Lag() }

// Close ends the subscription. It may be called at any time, also by Consume, and more than once.
func (d *Drainer) Close() {
	d.mu.Lock()
	was := d.phase
	d.phase = drainOver
	d.mu.Unlock()
	d.cursor.Close()
	if d.owner != nil && was != drainOver {
		d.cursor.s.goroutines.remove()
	}
}
