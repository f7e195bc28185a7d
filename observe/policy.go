package observe

import (
	"time"
)

// Failure says what becomes of an event whose observer returned an error or panicked.
type Failure uint8

// The policies on failure.
const (
	// Retry calls the observer again with back-off, at most Attempts times, then skips the event. It is the default.
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
	failure  Failure
	attempts int
	resync   time.Duration
	optional bool
}

const (
	defaultAttempts = 5
	retryBase       = 200 * time.Millisecond
	retryCap        = 30 * time.Second
	defaultLimit    = 16
)

// Name names the observer in logs, metrics and Describe. Default: the file and line of its declaration.
func Name(name string) Option { return func(o *options) { o.name = name } }

// Only restricts the observer to the events of the mask. Default: all events, initial objects included.
func Only(mask Mask) Option { return func(o *options) { o.mask = mask } }

// Async lets the observer be called for up to limit keys at once (default 16 if limit is not positive); events of
// one key stay in order, and Synchronized comes after everything before it has been handled.
func Async(limit int) Option {
	return func(o *options) {
		if limit <= 0 {
			limit = defaultLimit
		}
		o.limit = limit
	}
}

// OnFailure sets the policy for errors and panics of the observer, and for Retry the number of calls for one event
// (default 5 if not positive), 200 ms to 30 s apart with full jitter.
func OnFailure(f Failure, attempts int) Option {
	return func(o *options) { o.failure, o.attempts = f, attempts }
}

// Every has the known state delivered again as Resync events, spread over the period. Default: off. It costs no
// request.
func Every(period time.Duration) Option { return func(o *options) { o.resync = period } }
