package source

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// history counts the troubles since a watch last stayed open for a while.
type history struct {
	failures  int    // waits in a row
	expired   int    // 410 in a row
	internal  int    // 500 InternalError in a row
	quick     int    // watches that ended at once in a row
	lists     int    // lists refused in a row
	atVersion int    // lists at the version seen that failed in a row
	stuck     int    // watches at one version that failed in a row although they were answered
	stuckAt   string // that version
	reason    Reason // why the next list is made
}

// progress notes that a watch brought something. What costs a list whenever it happens is forgotten only when a watch
// stays open: a server may well send something before each refusal.
func (h *history) progress() {
	h.reason = ""
	if h.expired == 0 && h.internal == 0 && h.lists == 0 {
		h.failures = 0
	}
}

// settled notes that a watch stayed open. It may have hung in the middle of an event all the time.
func (h *history) settled() { *h = history{stuck: h.stuck, stuckAt: h.stuckAt} }

// Bounds of what is tried before the next stronger remedy.
const (
	maxInternal = 3
	maxQuick    = 3
	maxStuck    = 3
	maxAtSeen   = 2
	quickEnd    = 2 * time.Second // a watch that ends sooner without an event ended at once
	tooLargeFor = time.Second     // wait before a list when the server does not say how long
	maxTold     = 5 * time.Minute // of what a server may tell us to wait
	maxSoon     = 10 * time.Second
)

// remedy is what to do about the end of an attempt.
type remedy struct {
	relist, fresh bool          // list again; consistently, whatever is known
	told          time.Duration // wait as the server said
	wait          bool          // wait by the back-off
	soon          bool          // but not long: somebody may be waiting for what they have just set right
	reconnect     bool          // by a new connection
	degraded      bool
	reason        Reason // "": nothing to report
}

// remedyFor is the whole of the repair policy: what ended the attempt, and what went before, decide what comes next.
// Nothing is asked for ever at the same version: a list that fails at the version seen is tried there once more,
// whatever was wrong.
func remedyFor(err error, h *history) remedy {
	failed, listing := errors.AsType[*listFailure](err)
	r := remedyForCause(err, listing, h)
	if listing && failed.atVersion {
		h.atVersion++
		r.fresh = r.fresh || h.atVersion >= maxAtSeen
	}
	return r
}

func remedyForCause(err error, listing bool, h *history) remedy {
	switch {
	case err == errEndedSoon:
		h.quick = 0
		return remedy{wait: true}
	case err == errEnded, err == errLifetime:
		h.quick = 0
		return remedy{}
	case errors.Is(err, errResume):
		return remedy{reconnect: true, reason: ReasonSilent}
	case errors.Is(err, ErrEnded):
		if h.quick++; h.quick < maxQuick {
			return remedy{wait: true}
		}
		h.quick = 0
		return remedy{relist: true, wait: true, reason: ReasonExpired}
	case errors.Is(err, errRolledBack):
		return remedy{relist: true, fresh: true, reason: ReasonExpired}
	case errors.Is(err, ErrSilent):
		return remedy{relist: true, reconnect: true, degraded: true, reason: ReasonSilent}
	case errors.Is(err, ErrStalled):
		return remedy{wait: true, reconnect: true, degraded: true, reason: ReasonStalled}
	case errors.Is(err, ErrStale), errors.Is(err, ErrImplausible):
		h.lists++
		return remedy{fresh: true, wait: h.lists > 1, reconnect: true, degraded: h.lists > 1, reason: ReasonServerError}
	}
	if api, ok := errors.AsType[*APIError](err); ok {
		return remedyForAPI(api, listing, h)
	}
	_, odd := errors.AsType[*ProtocolError](err)
	_, unfinished := errors.AsType[*initialEventsError](err)
	if odd || unfinished && !errors.Is(err, io.ErrUnexpectedEOF) {
		return remedy{wait: true, degraded: true, reason: ReasonProtocolError}
	}
	return remedy{wait: true, reconnect: true, degraded: true, reason: ReasonDisconnected}
}

func remedyForAPI(e *APIError, listing bool, h *history) remedy {
	switch {
	case isTooLarge(e):
		again, told := h.lists > 0, e.RetryAfter
		h.lists++
		if told == 0 && !again {
			told = tooLargeFor
		}
		return remedy{relist: true, fresh: true, told: told, wait: again, degraded: again, reason: ReasonServerError}
	case isExpired(e):
		// The version is gone: list at it, then whatever it is; a server that goes on like this is asked ever less often.
		h.expired++
		return remedy{
			relist: true, fresh: listing || h.expired > 1, wait: h.expired > 2, degraded: h.expired > 2,
			reason: ReasonExpired,
		}
	case e.Code == http.StatusTooManyRequests:
		return remedy{told: e.RetryAfter, wait: true, degraded: true, reason: ReasonTooManyRequests}
	case e.ErrStatus.Reason == metav1.StatusReasonStoreReadError, e.ErrStatus.Reason == "StoreReadError":
		h.internal++ // an object that could not be read is gone, and its DELETED can never be sent
		return remedy{relist: true, wait: h.internal > 1, degraded: h.internal > 1, reason: ReasonServerError}
	case e.Code == http.StatusUnauthorized:
		return remedy{wait: true, soon: true, reconnect: true, degraded: true, reason: ReasonUnauthorized}
	case e.Code == http.StatusForbidden:
		return remedy{wait: true, soon: true, degraded: true, reason: ReasonForbidden}
	case e.Code == http.StatusNotFound:
		// What was deleted with the resource is in no watch that begins after its return.
		return remedy{relist: true, wait: true, soon: true, degraded: true, reason: ReasonNotFound}
	case e.Code == http.StatusInternalServerError && !listing:
		h.internal++
		relist := h.internal > maxInternal
		if relist {
			h.internal = 0
		}
		return remedy{relist: relist, told: e.RetryAfter, wait: true, degraded: true, reason: ReasonServerError}
	case e.Code < http.StatusInternalServerError && !listing:
		// The server does not take our version, or not this request: a list shows which.
		return remedy{relist: true, fresh: true, wait: true, degraded: true, reason: ReasonServerError}
	}
	return remedy{told: e.RetryAfter, wait: true, degraded: true, reason: ReasonServerError}
}

func isExpired(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && (e.Code == http.StatusGone || e.ErrStatus.Reason == metav1.StatusReasonExpired ||
		e.ErrStatus.Reason == metav1.StatusReasonGone)
}

// isTooLarge says that the server does not have the version yet that it was asked for. Servers before 1.18.6 have no
// cause of that type: the text tells, that of a cause or, before 1.17, of the status itself.
func isTooLarge(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	if !ok {
		return false
	}
	timeout := e.Code == http.StatusGatewayTimeout || e.ErrStatus.Reason == metav1.StatusReasonTimeout
	if timeout && saysTooLarge(e.ErrStatus.Message) {
		return true
	}
	if e.ErrStatus.Details == nil {
		return false
	}
	for _, c := range e.ErrStatus.Details.Causes {
		if c.Type == metav1.CauseTypeResourceVersionTooLarge || timeout && saysTooLarge(c.Message) {
			return true
		}
	}
	return false
}

func saysTooLarge(message string) bool {
	return strings.Contains(strings.ToLower(message), "too large resource version")
}

func orElse[T time.Duration | string](v, otherwise T) T {
	if v > *new(T) {
		return v
	}
	return otherwise
}

// repair does what the end of an attempt asks for, and waits if it must.
func (s *scope) repair(ctx context.Context, err error) {
	r := remedyFor(err, &s.history)
	if r.relist {
		s.relist = true
		s.history.reason = r.reason
	}
	s.fresh = s.fresh || r.fresh
	if r.reconnect {
		s.reconnect()
	}
	if r.reason == ReasonNotFound {
		s.kind, s.guess = "", "" // it may come back as another
	}
	var wait time.Duration
	if r.wait {
		wait = s.backoff.Delay(s.history.failures, s.src.cfg.Rand)
		s.history.failures++
		if r.soon {
			wait = min(wait, maxSoon)
		}
	}
	if r.told > 0 {
		wait = min(r.told, maxTold) + wait/8 // jitter, so that not all come back in the same moment
	}
	if wait > 0 {
		s.count.Retries++
		s.triedAgain(wait)
	}
	s.log.DebugContext(ctx, "attempt has ended", "error", err, "relist", s.relist, "consistent", s.fresh, "wait", wait)
	switch {
	case r.degraded:
		s.report(Degraded, r.reason, err)
	case r.reason != "":
		s.tell(r.reason, err)
	}
	_ = backoff.Pause(ctx, wait) // who calls looks at ctx
}

// tell reports what is being repaired. It is no condition by itself, and ends none.
func (s *scope) tell(reason Reason, err error) {
	phase := s.phase()
	if phase != Degraded {
		phase = Connecting
		if s.relist {
			phase = Listing
		}
	}
	s.report(phase, reason, err)
}

// reasonFor is the reason to report for a failure that is repaired where it happened.
func reasonFor(err error) Reason { return remedyForCause(err, true, &history{}).reason }

// stuck counts the watches that fail at one version although the server answers: one that it cannot send, or that its
// answer cannot be read. When it can be read from all the same, by a probe, watching goes on behind a list.
func (s *scope) stuck(ctx context.Context, err error) error {
	api, refused := errors.AsType[*APIError](err)
	_, odd := errors.AsType[*ProtocolError](err)
	if !odd && !errors.Is(err, ErrStalled) && !(refused && api.Code > http.StatusInternalServerError && !isTooLarge(err)) {
		return err
	}
	h := &s.history
	if h.stuckAt != string(s.seen) {
		h.stuck, h.stuckAt = 0, string(s.seen)
	}
	if h.stuck++; h.stuck <= maxStuck || s.relist || ctx.Err() != nil {
		return err
	}
	version, failed := s.probe(ctx, false)
	switch {
	case failed != nil:
	case resourceversion.Older(version, s.seen):
		return errRolledBack
	default:
		s.log.InfoContext(ctx, "watch fails again and again while the server can be read, listing", "version", string(s.seen),
			"error", err)
		h.stuck = 0
		s.relist = true
	}
	return err
}
