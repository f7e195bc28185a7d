package apiserver

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Answer refuses the request with this Status: code, body in the encoding that was asked for, and a Retry-After header
// if the details say so. Nothing is carried out.
func Answer(s metav1.Status) Fault { return Fault{func(p *plan) { p.answer = &s }} }

// Respond answers with exactly this; nothing is carried out. Pairs of header are name, value, name, value…
func Respond(code int, contentType, body string, header ...string) Fault {
	r := &response{code: code, contentType: contentType, body: []byte(body), header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		r.header[header[i]] = header[i+1]
	}
	return Fault{func(p *plan) { p.respond = r }}
}

// HTML answers as a proxy in between does: a page of HTML with this code, which may be 200.
func HTML(code int) Fault {
	return Respond(code, "text/html; charset=utf-8",
		fmt.Sprintf("<html><head><title>%d %s</title></head><body><h1>%[2]s</h1></body></html>\n", code,
			http.StatusText(code)))
}

// Text answers with this code and a line of plain text.
func Text(code int, line string) Fault { return Respond(code, "text/plain; charset=utf-8", line+"\n") }

// Table answers 200 with a meta.k8s.io/v1 Table, which nobody asked for.
func Table() Fault {
	return Respond(http.StatusOK, typeJSON,
		`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},`+
			`"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"","priority":0}],`+
			`"rows":[{"cells":["a"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}}]}`)
}

// EmptyList answers a list with no items, though there are some, and with the right version.
func EmptyList() Fault { return Fault{func(p *plan) { p.list.empty = true }} }

// TruncateList sends the first n items of a list and claims that they are all.
func TruncateList(n int) Fault { return Fault{func(p *plan) { p.list.keep = n }} }

// DuplicateItems sends every item of a list twice.
func DuplicateItems() Fault { return Fault{func(p *plan) { p.list.duplicate = true }} }

// NoListVersion leaves resourceVersion out of the metadata of a list.
func NoListVersion() Fault { return Fault{func(p *plan) { p.list.noVersion = true }} }

// Lagging answers gets and lists from the state at this revision, as a replica does whose cache is behind; a request
// for something newer is answered 504 ResourceVersionTooLarge. Even a consistent read is answered so: the replica does
// not know better. A WatchList starts from that state too and then catches up; see HoldEvents for a watch that lags.
func Lagging(revision uint64) Fault { return Fault{func(p *plan) { p.list.at = revision }} }

// ExpireContinue answers 410 to a continue token. If inconsistent, the answer carries a token with which the
// rest can be read from the present state.
func ExpireContinue(inconsistent bool) Fault {
	return Fault{func(p *plan) { p.list.expireContinue, p.list.noInconsistent = true, !inconsistent }}
}

// Silent answers a watch with headers and then sends nothing: no event, no bookmark. It ends at timeoutSeconds.
func Silent() Fault { return Fault{func(p *plan) { p.watch.silent = true }} }

// NoBookmarks sends no bookmark but the one that ends the initial events.
func NoBookmarks() Fault { return Fault{func(p *plan) { p.watch.noBookmarks = true }} }

// IgnoreTimeout lets a watch live past timeoutSeconds, as behind some proxies.
func IgnoreTimeout() Fault { return Fault{func(p *plan) { p.watch.ignoreTimeout = true }} }

// EndAfter ends the stream of a watch cleanly after n events (bookmarks do not count); 0 ends it at once.
func EndAfter(n int) Fault { return Fault{func(p *plan) { p.watch.endAfter = n }} }

// ErrorEvent sends, after n events, an ERROR event with this Status, and ends the stream.
func ErrorEvent(n int, s metav1.Status) Fault {
	return Fault{func(p *plan) { p.watch.errorAfter, p.watch.errorEvent = n, &s }}
}

// DuplicateEvents sends every event of a watch twice.
func DuplicateEvents() Fault { return Fault{func(p *plan) { p.watch.duplicate = true }} }

// ReplayEvents sends, before each event, up to n of those that went before it again: older versions.
func ReplayEvents(n int) Fault { return Fault{func(p *plan) { p.watch.replay = n }} }

// NoInitialEventsEnd leaves out the bookmark that ends the initial events of a WatchList.
func NoInitialEventsEnd() Fault { return Fault{func(p *plan) { p.watch.noInitialEnd = true }} }

// PlainInitialEventsEnd sends that bookmark without its annotation.
func PlainInitialEventsEnd() Fault { return Fault{func(p *plan) { p.watch.plainInitialEnd = true }} }

// IgnoreWatchList treats sendInitialEvents as very old servers do: as if it were not there.
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

// Expired is 410 with reason Expired; Gone is the same with the reason that older servers give.
func Expired() metav1.Status {
	return failure(http.StatusGone, metav1.StatusReasonExpired, "The resourceVersion for the provided watch is too old.")
}

// Gone is 410 with reason Gone.
func Gone() metav1.Status {
	return failure(http.StatusGone, metav1.StatusReasonGone, "too old resource version: 1 (2)")
}

// TooManyRequests is 429; retryAfter in seconds, 0 for none.
func TooManyRequests(retryAfter int32) metav1.Status {
	s := failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		"too many requests, please try again later")
	s.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	return s
}

// VersionTooLarge is 504 with the cause ResourceVersionTooLarge; retryAfter in seconds.
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

// StoreReadError is the 500 that a watch ends with when a corrupt object was deleted by force.
func StoreReadError() metav1.Status {
	return failure(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, "data from the storage is corrupt")
}

// Failure is any Status by its code: 400, 401, 403, 404, 409, 422, 500, 502, 503, 504…
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
