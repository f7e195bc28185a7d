package backoff

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter bounds the delay that a server can request with Retry-After, against broken or hostile servers.
const MaxRetryAfter = 24 * time.Hour

// RetryAfter parses the Retry-After header (RFC 9110, section 10.2.3): seconds, or a date relative to now. A date in
// the past is 0. It returns false if the header is missing or malformed. The result is in [0, MaxRetryAfter].
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" || len(text) > 64 {
		return 0, false
	}
	if isDigits(text) {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter, true // also for numbers that overflow an int64
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter), true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
