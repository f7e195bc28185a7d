package webhook

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTokens: concurrent callers share one fetch of a token, which is kept until its renewal. It is fetched again only
// for other inputs or after a refusal. A failed fetch leaves no token.
func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cached tokens
		fetches := 0
		fetch := func(value string) func() (accessToken, error) {
			return func() (accessToken, error) {
				fetches++
				time.Sleep(time.Second) // others arrive meanwhile
				return accessToken{value: value, renewAt: time.Now().Add(time.Minute), refused: new(atomic.Bool)}, nil
			}
		}
		get := func(reason, key, refused, offered, want string, fetched bool) accessToken {
			t.Helper()
			token, isNew, err := cached.get(t.Context(), "ns/hook", key, refused, fetch(offered))
			if err != nil || token.value != want || isNew != fetched {
				t.Errorf("%s: got %q (fetched %v) and %v, want %q (fetched %v)", reason, token.value, isNew, err, want, fetched)
			}
			return token
		}
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				if token, _, err := cached.get(t.Context(), "ns/hook", "a", "", fetch("1")); err != nil || token.value != "1" {
					t.Errorf("a concurrent caller got %q and %v", token.value, err)
				}
			})
		}
		synctest.Wait()
		if value := cached.known("ns/hook", "a"); value != "" {
			t.Errorf("%q is known while it is fetched", value)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := cached.get(ctx, "ns/hook", "a", "", fetch("1")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller whose context ends during the fetch of another one got %v", err)
		}
		callers.Wait()
		if fetches != 1 {
			t.Errorf("%d fetches for concurrent callers, want 1", fetches)
		}
		first := get("cached", "a", "", "2", "1", false)
		get("the receiver has refused it", "a", "1", "2", "2", true)
		first.refused.Store(true)
		second := get("another value was refused", "a", "", "3", "2", false)
		second.refused.Store(true)
		get("this value was refused", "a", "", "3", "3", true)
		time.Sleep(time.Minute)
		get("due for renewal", "a", "", "4", "4", true)
		get("other inputs", "b", "", "5", "5", true)
		if value := cached.known("ns/hook", "b") + cached.known("ns/hook", "a"); value != "5" {
			t.Errorf("known is %q, want only 5, of the current inputs", value)
		}
		cached.forget("ns/hook")
		broken := errors.New("broken")
		if _, _, err := cached.get(t.Context(), "ns/hook", "b", "", func() (accessToken, error) {
			return accessToken{}, broken
		}); !errors.Is(err, broken) {
			t.Errorf("got %v for a failed fetch", err)
		}
		if value := cached.known("ns/hook", "b"); value != "" {
			t.Errorf("a failed fetch left %q", value)
		}
		get("after a failed fetch", "b", "", "6", "6", true)
	})
}
