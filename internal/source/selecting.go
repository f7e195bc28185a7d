package source

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/shard"
)

// A server without shard selectors ignores them and sends all objects. A server with them may reject a selector: with
// 400, with 500 because the parser returns a plain error, or with 403 from a proxy. The scope then repeats the request
// once without the selector. If that succeeds, the source sends no selector for noSelectorFor.

// noSelectorFor is how long the source sends no selector to a server that rejected it.
const noSelectorFor = 10 * time.Minute

// shardSelector chooses the shard selectors of requests. It remembers a rejection. It is safe for concurrent use.
type shardSelector struct {
	rejectedUntil atomic.Int64 // time in Unix nanoseconds until which no selector is sent
}

// of returns the selector for slots, or "" if the server must not select.
func (s *shardSelector) of(slots *shard.Set) string {
	if slots == nil || slots.IsAll() || time.Now().UnixNano() < s.rejectedUntil.Load() {
		return ""
	}
	return slots.Selector()
}

// rejected records that the server rejects selectors.
func (s *shardSelector) rejected() { s.rejectedUntil.Store(time.Now().Add(noSelectorFor).UnixNano()) }

// sendSelecting sends a request for slots. It closes the body of a rejection before it sends the next request.
func (r *requester) sendSelecting(
	ctx context.Context, slots *shard.Set, send func(shardSelector string) (*http.Response, error),
) (*http.Response, error) {
	selector := r.shardSelector.of(slots)
	res, err := send(selector)
	if err != nil || selector == "" || !mayRefuseSelector(res.StatusCode) {
		return res, err
	}
	refused := refusal(res)
	_ = res.Body.Close() // refusal has read the body
	if err := r.admit(ctx, true); err != nil {
		return nil, err
	}
	if res, err = send(""); err == nil && res.StatusCode == http.StatusOK {
		r.shardSelector.rejected()
		r.log.InfoContext(ctx, "server does not select by slot, filtering on the client", "error", refused)
	}
	return res, err
}

// mayRefuseSelector reports whether a status may reject the selector alone. It returns false for a status with another
// meaning: authentication, resource, version or rate.
func mayRefuseSelector(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests:
		return false
	}
	return code >= http.StatusBadRequest && code <= http.StatusNotImplemented
}
