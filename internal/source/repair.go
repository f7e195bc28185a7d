package source

import (
	"errors"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// history counts consecutive faults since a watch last stayed open for a while.
type history struct {
	failures  int    // waits
	expired   int    // responses with 410
	internal  int    // responses with 500 InternalError
	quick     int    // watches that ended immediately
	lists     int    // rejected lists
	atVersion int    // failed lists at the version seen
	stuck     int    // watches at one version that failed although the server responded
	stuckAt   string // the version of stuck
	reason    Reason // reason for the next list
}

// progress records that a watch delivered an event. Counters of faults that cost a list are reset only when a watch
// stays open, because a server may send an event before each error.
func (h *history) progress() {
	h.reason = ""
	if h.expired == 0 && h.internal == 0 && h.lists == 0 {
		h.failures = 0
	}
}

// stayedOpen records that a watch stayed open. It keeps stuck: the watch may have hung in the middle of an event.
func (h *history) stayedOpen() { *h = history{stuck: h.stuck, stuckAt: h.stuckAt} }

// Numbers of tries before the next stronger remedy, and bounds of waits.
const (
	maxInternal   = 3
	maxQuick      = 3
	maxStuck      = 3
	maxAtSeen     = 2
	quickEnd      = 2 * time.Second // a watch that ends sooner without an event counts as ended immediately
	tooLargeFor   = time.Second     // wait before a list if the server gives no delay
	maxRetryAfter = 5 * time.Minute // bounds the delay that a server requests
	maxShortWait  = 10 * time.Second
)

// remedy is the response to the end of an attempt.
type remedy struct {
	relist, consistent bool          // list again; with a consistent read
	retryAfter         time.Duration // delay that the server requested
	wait               bool          // wait for the back-off delay
	shortWait          bool          // limit the wait to maxShortWait: a user may have just fixed the cause
	reconnect          bool          // open a new connection
	degraded           bool
	reason             Reason // "": no report
}

// remedyFor is the repair policy. The error and the history of the scope determine the remedy. A second failed list at
// the version seen always leads to a consistent list.
func remedyFor(err error, h *history) remedy {
	failed, listing := errors.AsType[*listFailure](err)
	r := remedyForCause(err, listing, h)
	if listing && failed.atVersion {
		h.atVersion++
		r.consistent = r.consistent || h.atVersion >= maxAtSeen
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
		return remedy{relist: true, consistent: true, reason: ReasonExpired}
	case errors.Is(err, ErrSilent):
		return remedy{relist: true, reconnect: true, degraded: true, reason: ReasonSilent}
	case errors.Is(err, ErrStalled):
		return remedy{wait: true, reconnect: true, degraded: true, reason: ReasonStalled}
	case errors.Is(err, ErrStale), errors.Is(err, ErrImplausible):
		h.lists++
		return remedy{
			consistent: true, wait: h.lists > 1, reconnect: true, degraded: h.lists > 1, reason: ReasonServerError,
		}
	}
	if api, ok := errors.AsType[*APIError](err); ok {
		return remedyForAPI(api, listing, h)
	}
	_, malformed := errors.AsType[*ProtocolError](err)
	_, unfinished := errors.AsType[*initialEventsError](err)
	if malformed || unfinished && !errors.Is(err, io.ErrUnexpectedEOF) {
		return remedy{wait: true, degraded: true, reason: ReasonProtocolError}
	}
	return remedy{wait: true, reconnect: true, degraded: true, reason: ReasonDisconnected}
}

func remedyForAPI(e *APIError, listing bool, h *history) remedy {
	switch {
	case isTooLarge(e):
		again, retryAfter := h.lists > 0, e.RetryAfter
		h.lists++
		if retryAfter == 0 && !again {
			retryAfter = tooLargeFor
		}
		return remedy{
			relist: true, consistent: true, retryAfter: retryAfter, wait: again, degraded: again,
			reason: ReasonServerError,
		}
	case isExpired(e):
		// The version has expired: list at the version seen, then consistently, then with growing delays.
		h.expired++
		return remedy{
			relist: true, consistent: listing || h.expired > 1, wait: h.expired > 2, degraded: h.expired > 2,
			reason: ReasonExpired,
		}
	case e.Code == http.StatusTooManyRequests:
		return remedy{retryAfter: e.RetryAfter, wait: true, degraded: true, reason: ReasonTooManyRequests}
	case e.ErrStatus.Reason == metav1.StatusReasonStoreReadError, e.ErrStatus.Reason == "StoreReadError":
		h.internal++ // an unreadable object was removed, and its DELETED can never be sent
		return remedy{relist: true, wait: h.internal > 1, degraded: h.internal > 1, reason: ReasonServerError}
	case e.Code == http.StatusUnauthorized:
		return remedy{wait: true, shortWait: true, reconnect: true, degraded: true, reason: ReasonUnauthorized}
	case e.Code == http.StatusForbidden:
		return remedy{wait: true, shortWait: true, degraded: true, reason: ReasonForbidden}
	case e.Code == http.StatusNotFound:
		// A watch that begins after the resource returns does not report the objects deleted with it.
		return remedy{relist: true, wait: true, shortWait: true, degraded: true, reason: ReasonNotFound}
	case e.Code == http.StatusInternalServerError && !listing:
		h.internal++
		relist := h.internal > maxInternal
		if relist {
			h.internal = 0
		}
		return remedy{relist: relist, retryAfter: e.RetryAfter, wait: true, degraded: true, reason: ReasonServerError}
	case e.Code < http.StatusInternalServerError && !listing:
		// The server rejects the version or the request. A list tells which.
		return remedy{relist: true, consistent: true, wait: true, degraded: true, reason: ReasonServerError}
	}
	return remedy{retryAfter: e.RetryAfter, wait: true, degraded: true, reason: ReasonServerError}
}

// reasonFor returns the reason to report for err when the caller repairs it directly.
func reasonFor(err error) Reason { return remedyForCause(err, true, &history{}).reason }

// isStuck counts the watches that fail at one version although the server responds, for example because it cannot send
// an event. It reports whether one more failure at this version has to be explained by a probe.
func (h *history) isStuck(err error, version []byte) bool {
	api, refused := errors.AsType[*APIError](err)
	_, malformed := errors.AsType[*ProtocolError](err)
	unavailable := refused && api.Code > http.StatusInternalServerError && !isTooLarge(err)
	if !malformed && !errors.Is(err, ErrStalled) && !unavailable {
		return false
	}
	if h.stuckAt != string(version) {
		h.stuck, h.stuckAt = 0, string(version)
	}
	h.stuck++
	return h.stuck > maxStuck
}
