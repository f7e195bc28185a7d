package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// Drainer follows a store for one consumer: it takes the events of a subscriber in batches and hands each batch to a
// function. It owns what goes with that: to be woken, to take until nothing comes, and to close. The contract:
//
//   - Order: the batches are those of [Cursor.Take], one after the other. A batch is handled before the next one is
//     taken, so Synced comes after the initial objects were handled.
//   - One at a time: Consume is never called by two goroutines at once.
//   - No event is missed: a wake during a drain makes it look once more before it ends.
//   - Back-pressure: nothing is queued here. What a slow consumer has not taken the store folds, per key.
//   - Goroutines: see DrainOptions.Owner and DrainOptions.Inline. With neither of them the consumer drains on a
//     goroutine of its own, by Run or by Step.
//   - The end: when Consume returns false, the subscription is closed. After Close has returned no goroutine is begun
//     and no batch is taken; a call of Consume that is under way goes on.
//   - Failure: on a goroutine that is not the consumer's own, a panic and runtime.Goexit close the subscription; see
//     DrainOptions.Failed. On one of its own they are the business of the caller of Run or Step.
//
// An idle drainer has no goroutine. Start, Close and Lag are safe for concurrent use; Run and Step are for one
// goroutine at a time.
type Drainer struct {
	cursor   Cursor
	consumer Consumer
	owner    *sync.WaitGroup
	loop     func() // drain, made once so that a wake allocates nothing

	mu    sync.Mutex // guards phase; a leaf
	phase drainPhase
	sated bool // Consume has said that it wants no more
	batch uint32
}

// drainPhase is where a drainer with an owner, or an inline one, is.
type drainPhase uint8

const (
	drainIdle  drainPhase = iota
	draining              // a goroutine drains
	drainAgain            // a goroutine drains, and must look once more
	drainOver             // none drains from now on
)

// Consumer is what a Drainer hands events to.
type Consumer interface {
	// Consume is DrainOptions.Consume.
	Consume(events []Event) (more bool)
	// Failed is DrainOptions.Failed.
	Failed(panicked error)
}

// functions are a Consumer.
type functions struct {
	consume func([]Event) bool
	failed  func(error) // nil: it is logged
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

// DrainOptions configure a Drainer. Only Consume is needed, or a Consumer.
type DrainOptions struct {
	// SubscribeOptions say what is given. Wake is called only when Owner and Inline are not set; it may be nil: see
	// Woken.
	SubscribeOptions
	// Consume handles a batch and says whether it wants more. The slice is valid until it returns. It may call Close.
	Consume func(events []Event) (more bool)
	// Batch is how many events Consume is given at most; 0: 64.
	Batch int
	// Owner, if set, waits for a goroutine that drains. The drainer begins one when there is something to take, and
	// it ends when all is taken.
	Owner *sync.WaitGroup
	// Inline has the goroutine drain that wakes, which is the one that fills the store. Consume must not block.
	Inline bool
	// Failed is called when the subscription has been closed because Consume has panicked (with value and stack as
	// text), or Consume or a filter has ended the goroutine (with nil). Who ends the goroutine after Close is not
	// told. Nil: it is logged.
	Failed func(panicked error)
	// Consumer is called instead of Consume and Failed: it takes fewer allocations where there are very many drainers.
	Consumer Consumer
}

// Drain adds a subscriber whose events are handed to a function. Nothing is taken before Start, Run or Step. Close the
// drainer when it is not needed any more.
func (s *Store) Drain(opt DrainOptions) *Drainer {
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
		d.loop, d.cursor.drainer = d.drain, d
	case opt.Inline:
		d.cursor.drainer = d
	case opt.Wake == nil:
		d.cursor.waiting()
	}
	s.subscribe(&d.cursor)
	return d
}

// Start has the drainer begin, if it has an owner or is inline, and look once more if it has begun. With an owner it
// does not block; inline it drains.
func (d *Drainer) Start() {
	if d.begin() && d.owner == nil {
		d.drain()
	}
}

// begin makes the drainer busy and says whether it was not. With an owner it begins the goroutine.
func (d *Drainer) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.phase {
	case drainIdle:
		d.phase = draining
		if d.owner != nil {
			d.owner.Add(1) // under the lock: never after Close has returned
			go d.loop()
		}
		return true
	case draining:
		d.phase = drainAgain
	}
	return false
}

// rest ends a drain that has found nothing, unless there was a wake meanwhile.
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

// drain hands on all there is.
func (d *Drainer) drain() {
	if d.owner != nil {
		defer d.owner.Done()
	}
	if p := protect.CallOr(d.rounds, d.left); p != nil {
		d.fail(p)
	}
}

// rounds hands on batches until nothing comes.
func (d *Drainer) rounds() {
	for d.next() || !d.rest() {
	}
}

// next hands on one batch; more is false if there was none, or the consumer wants no more.
func (d *Drainer) next() (more bool) {
	events := d.cursor.Take(int(d.batch))
	if len(events) == 0 {
		return false
	}
	if !d.consumer.Consume(events) {
		d.sated = true
		d.Close()
		return false
	}
	return true
}

// left ends a drainer whose goroutine was ended by its consumer.
func (d *Drainer) left() {
	if !d.cursor.closed.Load() { // otherwise the consumer has seen to it
		d.fail(nil)
	}
}

// fail ends a drainer whose consumer has panicked, or has ended the goroutine (nil).
func (d *Drainer) fail(panicked *protect.Panic) {
	d.Close()
	if panicked != nil {
		d.consumer.Failed(panicked)
	} else {
		d.consumer.Failed(nil)
	}
}

// logFailure is for who has no function Failed.
func (d *Drainer) logFailure(panicked error) {
	var p *protect.Panic
	if errors.As(panicked, &p) {
		d.cursor.s.logger.Error("a subscriber panicked", "subscriber", d.cursor.opt.Name,
			"panic", p.Value, "stack", string(p.Stack))
	} else {
		d.cursor.s.logger.Error("a subscriber ended its goroutine", "subscriber", d.cursor.opt.Name)
	}
}

// Step hands on one batch on the goroutine of the caller, and says whether there may be more: if not, Wake is called,
// or Woken tells, when there is.
func (d *Drainer) Step() (more bool) {
	if d.cursor.armed.Load() { // the last Take has found nothing, and nothing has come since
		return false
	}
	return d.next()
}

// Woken tells when there may be something for Step again. Of a drainer that has an owner, is inline or has a function
// Wake it tells nothing.
func (d *Drainer) Woken() <-chan struct{} { return d.cursor.waiting().woken }

// Run hands on all there is and all that comes, on the goroutine of the caller, until Consume wants no more (nil),
// ctx is done (its cause) or the subscription is closed (ErrClosed). The subscription is closed when it returns.
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

// Lag returns how many changes, folded per key if there are many, wait to be taken.
func (d *Drainer) Lag() int { return d.cursor.Lag() }

// Close ends the subscription. It may be called at any time, also by Consume, and again.
func (d *Drainer) Close() {
	d.mu.Lock()
	d.phase = drainOver
	d.mu.Unlock()
	d.cursor.Close()
}
