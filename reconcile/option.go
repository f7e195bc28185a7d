package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/rights"
)

// Option configures a controller.
type Option func(*settings)

type settings struct {
	primary     []WatchOption
	watches     []*watch
	workers     int
	finalizer   string
	deadline    time.Duration
	interval    time.Duration
	retry       Backoff
	delay       func(k Key, failures int) time.Duration // replaces retry; nil: none
	attempts    int
	each        rate // per object
	total       rate
	preempt     bool
	leader      Leadership
	stuck       time.Duration
	logger      *slog.Logger
	onFailure   func(Failure)
	quiet       bool // write no Events
	needs       []rights.Right
	syncWarning time.Duration
	tracers     trace.TracerProvider
	fault       error
}

// Defaults of the options.
const (
	defaultWorkers  = 8
	defaultInterval = 10 * time.Hour
	defaultStuck    = 5 * time.Minute
)

// Backoff is the delay between failed attempts. It doubles from Base to Cap, with full jitter. Zero fields have the
// defaults below.
type Backoff struct {
	Base time.Duration // default 1 s
	Cap  time.Duration // default 5 min
}

func (b Backoff) after(attempt int, rnd func() float64) time.Duration {
	return backoff.Policy{Base: b.Base, Cap: b.Cap, Factor: 2}.Delay(attempt, rnd)
}

// conflictBackoff is short: the next attempt reads a newer object and probably succeeds.
var conflictBackoff = Backoff{Base: 50 * time.Millisecond, Cap: 10 * time.Second}

// Primary configures the watch of the reconciled objects: which objects, and which changes matter.
func Primary(opts ...WatchOption) Option {
	return func(s *settings) { s.primary = append(s.primary, opts...) }
}

// Workers bounds how many objects are reconciled concurrently; the default is 8. An idle controller has no workers.
func Workers(n int) Option { return func(s *settings) { s.workers = n } }

// Finalizer sets the finalizer of a [Cleaner]; the default is "fairlead.io/" and the name of the controller.
func Finalizer(name string) Option { return func(s *settings) { s.finalizer = name } }

// Deadline bounds one reconciliation: its context then ends with cause [ErrDeadline]. By default there is no bound.
func Deadline(d time.Duration) Option { return func(s *settings) { s.deadline = d } }

// MaxInterval sets the interval after which each object is reconciled again without an event. The default is 10 h; a
// negative interval means never. Objects are spread evenly over the interval. Objects whose attempts are exhausted are
// also tried again.
func MaxInterval(d time.Duration) Option { return func(s *settings) { s.interval = d } }

// WithBackoff sets the back-off after failures; the default is 1 s to 5 min.
func WithBackoff(b Backoff) Option { return func(s *settings) { s.retry = b } }

// WithDelay replaces the back-off of [WithBackoff] by a function. fn returns the delay before the next attempt at an
// object. failures is the number of failed attempts before the last one, 0 after the first failure. Like the back-off
// it also decides after [After](0). It is called with a lock held: it must return at once and must not call the
// controller. If it panics, the back-off of WithBackoff applies.
// Conflicts keep their own short back-off, and a Retry-After of the server remains a minimum.
func WithDelay(fn func(key Key, failures int) time.Duration) Option {
	return func(s *settings) { s.delay = fn }
}

// Priority ranks objects by a function of theirs. Objects for which fn returns a positive number are reconciled before
// all others, and those with a negative number after all others. For 0, changes go before initial objects and those
// that are only due by [MaxInterval]. No object starves: after eight picks of one class, one of a lower class follows.
// obj is READ-ONLY, and fn must depend only on it. The type must be that of the controller.
func Priority[T any](fn func(obj *T) int) Option {
	return func(s *settings) {
		s.primary = append(s.primary, func(w *watch) {
			w.function("Priority", reflect.TypeFor[T](), fn == nil)
			w.rank = func(r *cache.Record) (int, error) {
				obj, err := store.As[T](r)
				if err != nil {
					return 0, err
				}
				return fn(obj), nil
			}
		})
	}
}

// MaxAttempts bounds the attempts for one spec. After the last one, the controller records the error and does not retry
// until the spec changes or [MaxInterval] has passed. By default there is no bound.
func MaxAttempts(n int) Option { return func(s *settings) { s.attempts = n } }

// RateLimit allows each object at most n reconciliations in any period of length per. By default there is no limit.
// Events during the wait lead to one reconciliation, when the limit allows it.
func RateLimit(n int, per time.Duration) Option {
	return func(s *settings) { s.each = rate{n: n, per: per} }
}

// TotalRateLimit allows the controller to start at most n reconciliations of all its objects in any period of length
// per. It limits, for example, the load on an external system. Zero, the default, means no limit. Objects that wait
// keep their place in the queue, by priority and with namespaces in turn. Events during the wait are part of the one
// reconciliation that follows.
func TotalRateLimit(n int, per time.Duration) Option {
	return func(s *settings) { s.total = rate{n: n, per: per} }
}

// Preempt makes an event cancel a running reconciliation of its object, with cause [ErrPreempted]. Such events change
// the spec, begin the deletion or replace the object. The cancelled reconciliation can send no more requests, and the
// next one starts when its code has returned. By default a running reconciliation finishes, and one more follows.
func Preempt() Option { return func(s *settings) { s.preempt = true } }

// Leader makes the controller work only while this process leads. It sends no request after leadership is lost. Without
// Leader, two processes with this controller both work.
func Leader(l Leadership) Option { return func(s *settings) { s.leader = l } }

// Stuck sets how long a reconciliation may run past its [Deadline] before the controller reports it, with its stack.
// The controller reports it again after twice the time, and so on. The default is 5 min; a negative duration means
// never. No other call for the object starts meanwhile (F1).
func Stuck(d time.Duration) Option { return func(s *settings) { s.stuck = d } }

// Logger sets the log for failures, with the stacks of panics, and for decisions that operators need to know. The
// default is the logger of the host, see [Overseer]; without that, there is no log.
func Logger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }

// WithoutEvents disables Kubernetes Events. By default the controller writes an Event about an object that causes a
// failure. These failures are a [Terminal] error, exhausted attempts, and a panic, which depends on the content of the
// object. [Recorder] counts equal Events and limits their rate. All other failures show in the log, the metrics and on
// the page of [DebugHandler].
func WithoutEvents() Option { return func(s *settings) { s.quiet = true } }

// Fault makes the declaration of the controller fail with err; nil changes nothing. It is for packages that declare
// controllers for their callers.
func Fault(err error) Option { return func(s *settings) { s.fault = errors.Join(s.fault, err) } }

// OnFailure sets a function that is called after each failed attempt, without any lock held. It must return quickly.
func OnFailure(fn func(Failure)) Option { return func(s *settings) { s.onFailure = fn } }

func (s *settings) complete(name string) error {
	if s.workers <= 0 {
		s.workers = defaultWorkers
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
		return fmt.Errorf("%w: finalizer %q must be a name with a domain, such as example.com/gateways; see Finalizer",
			ErrInvalid, s.finalizer)
	}
	return nil
}
