package observe

import "time"

// Failure says what becomes of an event whose observer returned an error or panicked.
type Failure uint8

// The policies on failure.
const (
	// Retry calls the observer again with back-off, then skips the event. It is the default, see [OnFailure].
	Retry Failure = iota
	// Skip reports the error and goes on with the next event.
	Skip
	// Stop reports the error and ends this observer; others go on.
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

// Option changes how an observer is called.
type Option func(*options)

type options struct {
	name     string
	mask     Mask
	limit    int // 0: sync
	execute  func(func())
	failure  Failure
	attempts int
	resync   time.Duration
	passive  bool // it only claims its source: nothing is delivered after Synchronized
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

// Only restricts the observer to the events of the mask. Default: all events, initial objects included.
func Only(mask Mask) Option { return func(o *options) { o.mask = mask } }

// Async lets the observer be called for up to limit keys at once (default 16 if limit is not positive). Events of one
// key stay in order, and Synchronized and Epoch come after everything before them has been handled. Changes of a key
// that is being worked on are folded into one, so that a slow key delays no other.
func Async(limit int) Option {
	return func(o *options) {
		if limit <= 0 {
			limit = defaultLimit
		}
		o.limit = limit
	}
}

// Via is [Async] with the calls run by an executor. Several observers may share it, to be bounded together. It must
// run every function that it is given, sooner or later, and may block until it can. If it panics, the function is run
// all the same. Default: a new goroutine.
func Via(limit int, execute func(func())) Option {
	return func(o *options) {
		Async(limit)(o)
		o.execute = execute
	}
}

// OnFailure sets the policy for errors and panics of the observer, and for Retry the number of calls for one event
// (default 5 if not positive), at random 200 ms to 400 ms apart, then up to twice as long each time, at most 30 s. An
// object that cannot be decoded is not retried.
func OnFailure(f Failure, attempts int) Option {
	return func(o *options) { o.failure, o.attempts = f, attempts }
}

// Every has the known state delivered again as Resync events, spread over the period. Default: off. It costs no
// request.
func Every(period time.Duration) Option { return func(o *options) { o.resync = period } }
