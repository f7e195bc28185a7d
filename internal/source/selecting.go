package source

import (
	"context"
	"net/http"
	"time"

	"github.com/fairlead-io/fairlead/shard"
)

// A server that knows nothing of shard selectors ignores them, and sends everything. One that knows them may refuse:
// as a mistake (400), as a failure of its own (500, since its parser says no more), or something in front of it as not
// allowed. Then the same is asked for once more without the selector. If that works, no selector is sent for a while.

// noSelectorFor is for how long no selector is sent to a server that refuses it.
const noSelectorFor = 10 * time.Minute

// sendSelecting makes a request for slots. The body of a refusal is closed before the next request is made.
func (s *scope) sendSelecting(
	ctx context.Context, slots *shard.Set, send func(shardSelector string) (*http.Response, error),
) (*http.Response, error) {
	selector := s.shardSelector(slots)
	res, err := send(selector)
	if err != nil || selector == "" || !mayRefuseSelector(res.StatusCode) {
		return res, err
	}
	refused := refusal(res)
	_ = res.Body.Close() // what matters of it was read
	if err := s.src.client.limiter.Wait(ctx, true); err != nil {
		return nil, err
	}
	if res, err = send(""); err == nil && res.StatusCode == http.StatusOK {
		s.src.unselecting.Store(time.Now().Add(noSelectorFor).UnixNano())
		s.log.InfoContext(ctx, "server does not select slots, filtering what comes", "error", refused)
	}
	return res, err
}

// shardSelector is how to ask a server for slots; "": it is not to select.
func (s *scope) shardSelector(slots *shard.Set) string {
	if slots == nil || slots.IsAll() || time.Now().UnixNano() < s.src.unselecting.Load() {
		return ""
	}
	return slots.Selector()
}

// mayRefuseSelector says whether a status may be about the selector alone. It is not one that says something else of
// the request: that nobody knows who asks, what is asked for, at which version, or that it is too much.
func mayRefuseSelector(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests:
		return false
	}
	return code >= http.StatusBadRequest && code <= http.StatusNotImplemented
}
