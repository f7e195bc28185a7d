package observe

import "time"

// Failure is a policy for an event whose observer returned an error or panicked.
type Failure uint8

// The policies on failure.
const (
	// Retry calls the observer again with back-off, then skips the event. It is the default; see [OnFailure].
	Retry Failure = iota
	// Skip reports the error and continues with the next event.
	Skip
	// Stop reports the error and ends this observer. Other observers continue.
	Stop
)

// String returns the name of the policy.
func (f Failure) String() string {
	switch f {
	case Skip:
		return "Skip"
	case Stop:
		return "Stop"
	default:
		return "Retry"
	}
}

// Option configures an observer.
type Option func(*options)

type options struct {
	name     string
	mask     Mask
	limit    int // 0: sync
	execute  func(func())
	failure  Failure
	attempts int
	resync   time.Duration
	passive  bool // it only keeps its source open: nothing is delivered after Synchronized
}

const (
	defaultAttempts = 5
	retryBase       = 200 * time.Millisecond
	retryCap        = 30 * time.Second
	defaultLimit    = 16
)

func newOptions(opts []Option) options {
	o := options{attempts: defaultAttempts}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		opt(&o)
	}
	if o.attempts <= 0 {
		o.attempts = defaultAttempts
	}
	return o
}

// Name names the observer in logs, metrics and Describe. Default: the file and line of its declaration.
func Name(name string) Option { return func(o *options) { o.name = name } }

// Only restricts the observer to the events of the mask. Default: all events, including those for initial objects.
func Only(mask Mask) Option { return func(o *options) { o.mask = mask } }

// Async allows calls for up to limit keys at once (16 if limit is not positive). Events of one key stay in order.
// Synchronized and Epoch are delivered after all earlier events have been handled. Changes of a key in progress are
// folded into one, so a slow key delays no other key.
func Async(limit int) Option {
	return func(o *options) {
		if limit <= 0 {
			limit = defaultLimit
		}
		o.limit = limit
	}
}

// Via is like [Async], but an executor runs the calls. Several observers may share an executor to bound their calls
// together. execute must run every function that it receives, sooner or later, and may block until it can. If execute
// panics, the function still runs. Default: a new goroutine.
func Via(limit int, execute func(func())) Option {
	return func(o *options) {
		Async(limit)(o)
		o.execute = execute
	}
}

// OnFailure sets the policy for errors and panics of the observer. attempts is the number of calls for one event with
// Retry (5 if not positive). The first pause is random between 200 ms and 400 ms. The upper bound doubles with each
// call, up to 30 s. An object that cannot be decoded is not retried.
func OnFailure(f Failure, attempts int) Option {
	return func(o *options) { o.failure, o.attempts = f, attempts }
}

// Every delivers the known state again as Resync events, spread over the period. It sends no requests. Default: off.
func Every(period time.Duration) Option { return func(o *options) { o.resync = period } }
