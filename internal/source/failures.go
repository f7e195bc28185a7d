package source

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errUnordered reports that gained slots cannot be listed alone.
var errUnordered = errors.New("versions have no order")

// errRolledBack: the server's version is below the version seen. A consistent list follows.
var errRolledBack = errors.New("server is behind the version seen")

// initialEventsError reports that a watch did not end its initial events.
type initialEventsError struct{ cause error }

func (e *initialEventsError) Error() string { return errNoEndOfList.Error() + ": " + e.cause.Error() }

func (e *initialEventsError) Unwrap() error { return e.cause }

// listFailure marks an error as one of a list and not of a watch.
type listFailure struct {
	error
	atVersion bool // the list was requested at the version seen
}

func (e *listFailure) Unwrap() error { return e.error }

func isExpired(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && (e.Code == http.StatusGone || e.ErrStatus.Reason == metav1.StatusReasonExpired ||
		e.ErrStatus.Reason == metav1.StatusReasonGone)
}

// isTooLarge reports whether the server has not reached the requested version yet. Servers before 1.18.6 have no cause
// of that type. There the text of a cause or, before 1.17, of the status itself is compared.
func isTooLarge(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	if !ok {
		return false
	}
	timeout := e.Code == http.StatusGatewayTimeout || e.ErrStatus.Reason == metav1.StatusReasonTimeout
	if timeout && isTooLargeText(e.ErrStatus.Message) {
		return true
	}
	if e.ErrStatus.Details == nil {
		return false
	}
	for _, c := range e.ErrStatus.Details.Causes {
		if c.Type == metav1.CauseTypeResourceVersionTooLarge || timeout && isTooLargeText(c.Message) {
			return true
		}
	}
	return false
}

func isTooLargeText(message string) bool {
	return strings.Contains(strings.ToLower(message), "too large resource version")
}

// Errors of a watch that ended without a fault.
var (
	errEnded     = errors.New("server ended the watch")
	errEndedSoon = errors.New("server ended the watch after a short time")
	errLifetime  = errors.New("watch reached its maximum lifetime")
	errResume    = fmt.Errorf("%w, resuming to check the connection", ErrSilent)
)
