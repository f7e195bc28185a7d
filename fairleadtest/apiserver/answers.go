package apiserver

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Answer refuses the request with this Status: its code, a body in the requested encoding, and a Retry-After header if
// the details contain one. The request is not executed.
func Answer(s metav1.Status) Fault { return Fault{func(p *plan) { p.answer = &s }} }

// Respond sends exactly this answer without executing the request. header is a list of pairs: name, value, name,
// value…
func Respond(code int, contentType, body string, header ...string) Fault {
	r := &response{code: code, contentType: contentType, body: []byte(body), header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		r.header[header[i]] = header[i+1]
	}
	return Fault{func(p *plan) { p.respond = r }}
}

// HTML sends an HTML page with this code, which may be 200, as a proxy would.
func HTML(code int) Fault {
	return Respond(code, "text/html; charset=utf-8",
		fmt.Sprintf("<html><head><title>%d %s</title></head><body><h1>%[2]s</h1></body></html>\n", code,
			http.StatusText(code)))
}

// Text sends this code and a line of plain text.
func Text(code int, line string) Fault { return Respond(code, "text/plain; charset=utf-8", line+"\n") }

// Table sends 200 with a meta.k8s.io/v1 Table that the client has not requested.
func Table() Fault {
	return Respond(http.StatusOK, typeJSON,
		`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},`+
			`"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"","priority":0}],`+
			`"rows":[{"cells":["a"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}}]}`)
}

// EmptyList sends a list without items, although there are some, with the correct version.
func EmptyList() Fault { return Fault{func(p *plan) { p.list.empty = true }} }

// TruncateList sends only the first n items of a list, as if it were complete.
func TruncateList(n int) Fault { return Fault{func(p *plan) { p.list.keep = n }} }

// DuplicateItems sends every item of a list twice.
func DuplicateItems() Fault { return Fault{func(p *plan) { p.list.duplicate = true }} }

// NoListVersion omits resourceVersion from the metadata of a list.
func NoListVersion() Fault { return Fault{func(p *plan) { p.list.noVersion = true }} }

// Lagging answers gets and lists from the state at this revision, as a replica with a stale cache does. A request for a
// newer version gets 504 ResourceVersionTooLarge. Even a consistent read gets the old state, since the replica does not
// know a newer one. A WatchList starts from that state too and then catches up; HoldEvents makes a watch lag.
func Lagging(revision uint64) Fault { return Fault{func(p *plan) { p.list.at = revision }} }

// ExpireContinue answers a continue token with 410. If inconsistent, the answer carries a token that reads the
// remaining items from the present state.
func ExpireContinue(inconsistent bool) Fault {
	return Fault{func(p *plan) { p.list.expireContinue, p.list.noInconsistent = true, !inconsistent }}
}

// Silent answers a watch with headers and then sends no events and no bookmarks. The watch ends at timeoutSeconds.
func Silent() Fault { return Fault{func(p *plan) { p.watch.silent = true }} }

// NoBookmarks sends no bookmarks except the one that ends the initial events.
func NoBookmarks() Fault { return Fault{func(p *plan) { p.watch.noBookmarks = true }} }

// IgnoreTimeout keeps a watch open past timeoutSeconds, as some proxies do.
func IgnoreTimeout() Fault { return Fault{func(p *plan) { p.watch.ignoreTimeout = true }} }

// EndAfter ends a watch cleanly after n events, not counting bookmarks; 0 ends it at once.
func EndAfter(n int) Fault { return Fault{func(p *plan) { p.watch.endAfter = n }} }

// ErrorEvent sends an ERROR event with this Status after n events and ends the stream.
func ErrorEvent(n int, s metav1.Status) Fault {
	return Fault{func(p *plan) { p.watch.errorAfter, p.watch.errorEvent = n, &s }}
}

// DuplicateEvents sends every event of a watch twice.
func DuplicateEvents() Fault { return Fault{func(p *plan) { p.watch.duplicate = true }} }

// ReplayEvents repeats up to n earlier events, with their older versions, before each event.
func ReplayEvents(n int) Fault { return Fault{func(p *plan) { p.watch.replay = n }} }

// NoInitialEventsEnd omits the bookmark that ends the initial events of a WatchList.
func NoInitialEventsEnd() Fault { return Fault{func(p *plan) { p.watch.noInitialEnd = true }} }

// PlainInitialEventsEnd sends that bookmark without its annotation.
func PlainInitialEventsEnd() Fault { return Fault{func(p *plan) { p.watch.plainInitialEnd = true }} }

// IgnoreWatchList ignores sendInitialEvents, as very old servers do.
func IgnoreWatchList() Fault {
	return Fault{func(p *plan) {
		p.watch.noList = true
		p.query = append(p.query, func(q url.Values) {
			delete(q, "sendInitialEvents")
			delete(q, "resourceVersionMatch")
		})
	}}
}

func failure(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}

// Expired returns 410 with reason Expired. Gone returns the variant of older servers.
func Expired() metav1.Status {
	return failure(http.StatusGone, metav1.StatusReasonExpired, "The resourceVersion for the provided watch is too old.")
}

// Gone returns 410 with reason Gone.
func Gone() metav1.Status {
	return failure(http.StatusGone, metav1.StatusReasonGone, "too old resource version: 1 (2)")
}

// TooManyRequests returns 429. retryAfter is in seconds; 0 means none.
func TooManyRequests(retryAfter int32) metav1.Status {
	s := failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		"too many requests, please try again later")
	s.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	return s
}

// VersionTooLarge returns 504 with the cause ResourceVersionTooLarge. retryAfter is in seconds.
func VersionTooLarge(retryAfter int32) metav1.Status {
	s := failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
		"Timeout: Too large resource version: 2, current: 1")
	s.Details = &metav1.StatusDetails{
		RetryAfterSeconds: retryAfter,
		Causes: []metav1.StatusCause{
			{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
		},
	}
	return s
}

// StoreReadError returns the 500 that ends a watch when a corrupt object was deleted by force.
func StoreReadError() metav1.Status {
	return failure(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, "data from the storage is corrupt")
}

// Failure returns a Status for a code: 400, 401, 403, 404, 409, 422, 500, 502, 503, 504…
func Failure(code int) metav1.Status {
	reasons := map[int]metav1.StatusReason{
		http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
		http.StatusConflict: metav1.StatusReasonConflict, http.StatusGone: metav1.StatusReasonExpired,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
		http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
	}
	return failure(int32(code), reasons[code], strings.ToLower(http.StatusText(code)))
}
