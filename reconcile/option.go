package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/rights"
)

// Option tunes a controller.
type Option func(*settings)

type settings struct {
	primary     []WatchOption
	watches     []*watch
	workers     int
	finalizer   string
	deadline    time.Duration
	interval    time.Duration
	retry       Backoff
	attempts    int
	each        rate // of one object
	total       rate
	preempt     bool
	leader      Leadership
	stuck       time.Duration
	logger      *slog.Logger
	onFailure   func(Failure)
	quiet       bool // no Events
	needs       []rights.Right
	syncWarning time.Duration
	tracers     trace.TracerProvider
	fault       error
}

// Defaults of the options.
const (
	DefaultWorkers  = 8
	defaultInterval = 10 * time.Hour
	defaultStuck    = 5 * time.Minute
)

// Backoff is the time between failed attempts: it doubles from Base to Cap, with full jitter. Zero fields have the
// defaults named here.
type Backoff struct {
	Base time.Duration // 1 s
	Cap  time.Duration // 5 min
}

func (b Backoff) delay(attempt int, rnd func() float64) time.Duration {
	return backoff.Policy{Base: b.Base, Cap: b.Cap, Factor: 2}.Delay(attempt, rnd)
}

// conflicts are retried soon: what was overtaken reads something newer the next time.
var conflictBackoff = Backoff{Base: 50 * time.Millisecond, Cap: 10 * time.Second}

// Primary tunes the watch of the objects that are reconciled: which ones, and which changes matter.
func Primary(opts ...WatchOption) Option {
	return func(s *settings) { s.primary = append(s.primary, opts...) }
}

// Workers bounds how many objects are reconciled at a time; 8 by default. There is no goroutine while there is no work.
func Workers(n int) Option { return func(s *settings) { s.workers = n } }

// Finalizer names the finalizer of a [Cleaner]; "fairlead.io/" and the name of the controller by default.
func Finalizer(name string) Option { return func(s *settings) { s.finalizer = name } }

// Deadline bounds one reconciliation: its context ends then, with cause ErrDeadline. None by default.
func Deadline(d time.Duration) Option { return func(s *settings) { s.deadline = d } }

// MaxInterval is after how long every object is reconciled again though nothing has happened, spread evenly; 10 h by
// default, negative: never. It also ends the rest of an object whose attempts are exhausted.
func MaxInterval(d time.Duration) Option { return func(s *settings) { s.interval = d } }

// WithBackoff sets the back-off after failures; 1 s to 5 min by default.
func WithBackoff(b Backoff) Option { return func(s *settings) { s.retry = b } }

// MaxAttempts bounds how often one spec is tried: then the error is recorded, and nothing is tried until the spec
// changes, or the maximum interval has passed. No bound by default.
func MaxAttempts(n int) Option { return func(s *settings) { s.attempts = n } }

// RateLimit lets each object be reconciled at most n times in any period of that length. No limit by default. What
// happens meanwhile is one reconciliation when the limit allows it.
func RateLimit(n int, per time.Duration) Option {
	return func(s *settings) { s.each = rate{n: n, per: per} }
}

// TotalRateLimit lets the controller begin at most n reconciliations in any period of that length, of all its objects
// together: what it may ask of the world outside. Zero is no limit, which is the default. Objects that wait for it keep
// their place in the queue, by priority and with namespaces in turn, and what happens to them meanwhile is in the one
// reconciliation that comes.
func TotalRateLimit(n int, per time.Duration) Option {
	return func(s *settings) { s.total = rate{n: n, per: per} }
}

// Preempt has an event that changes the spec of an object, begins its deletion or replaces it end the context of a
// running reconciliation of it, with cause ErrPreempted. It sends no request any more, and the next one begins when its
// code has returned. By default a running reconciliation is finished, and one more follows.
func Preempt() Option { return func(s *settings) { s.preempt = true } }

// Leader has the controller work only while this process leads, and send no request when it does no more. Without it,
// two processes with this controller both work.
func Leader(l Leadership) Option { return func(s *settings) { s.leader = l } }

// Stuck is after how long a reconciliation, past its deadline if it has one, is reported as stuck, with its stack, and
// again after twice the time and so on; 5 min by default, negative: never. It is not overlapped: F1 holds.
func Stuck(d time.Duration) Option { return func(s *settings) { s.stuck = d } }

// Logger gets a line for each failure, with the stack of a panic, and each decision that an operator would ask about.
// Default: that of the host, see [Overseer]; without that, none.
func Logger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }

// WithoutEvents has the controller write no Kubernetes Events. By default it writes one about an object that is at
// fault: after an error that is [Terminal], when the attempts are exhausted, and for a panic, which depends on what is
// in the object. Equal ones are counted, and few are written in a short time, see [Recorder]. Any other failure is the
// world's, and shows in the log, the metrics and on the page of [DebugHandler].
func WithoutEvents() Option { return func(s *settings) { s.quiet = true } }

// Fault has the controller fail with err, as if it had been declared wrongly; nil changes nothing. It is for packages
// that declare controllers for others.
func Fault(err error) Option { return func(s *settings) { s.fault = errors.Join(s.fault, err) } }

// OnFailure is called, outside of any lock, after each failed attempt. It must be quick.
func OnFailure(fn func(Failure)) Option { return func(s *settings) { s.onFailure = fn } }

func (s *settings) complete(name string) error {
	if s.workers <= 0 {
		s.workers = DefaultWorkers
	}
	if s.interval == 0 {
		s.interval = defaultInterval
	}
	if s.stuck == 0 {
		s.stuck = defaultStuck
	}
	if s.syncWarning == 0 {
		s.syncWarning = 30 * time.Second
	}
	if name == "" {
		return fmt.Errorf("%w: no name", ErrInvalid)
	}
	if s.finalizer == "" {
		s.finalizer = "fairlead.io/" + strings.ToLower(name)
	}
	if s.fault != nil {
		return s.fault
	}
	if errs := validation.IsQualifiedName(s.finalizer); len(errs) > 0 || !strings.Contains(s.finalizer, "/") {
		return fmt.Errorf("%w: finalizer %q has to be a name with a domain, such as example.com/gateways; see Finalizer",
			ErrInvalid, s.finalizer)
	}
	return nil
}
