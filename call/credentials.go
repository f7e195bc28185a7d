package call

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// renewal makes the credentials new, by one call for all that were refused meanwhile.
type renewal struct {
	reload func(ctx context.Context) error // may be nil
	turn   chan struct{}                   // held by the call that renews
	done   atomic.Uint64                   // how often they were made new
}

// renew makes the credentials new after a 401 to a try that was sent when they had been made new so many times.
func (c *Client) renew(ctx context.Context, then uint64) error {
	select {
	case c.renewal.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.renewal.turn }()
	if c.renewal.done.Load() != then {
		return nil // another call has seen to it
	}
	err := errors.Join(c.renewal.protect(ctx), c.token.renew(time.Now()))
	if err == nil {
		c.renewal.done.Add(1)
	}
	return err
}

// protect calls the user's function, whose panic becomes an error.
func (r *renewal) protect(ctx context.Context) (err error) {
	if r.reload == nil {
		return nil
	}
	if p := protect.Call(func() { err = r.reload(ctx) }); p != nil {
		return fmt.Errorf("panic in the reload function: %w", p)
	}
	return err
}

// tokenFile is a token file that is read again after a 401. client-go reads it once a minute, which is too late for that
// and right for everything else, so what is read here is used for the next minute only. Plug-ins and token sources of
// client-go renew themselves when they see a 401.
type tokenFile struct {
	path string

	mu    sync.Mutex
	token string
	until time.Time
}

func (t *tokenFile) renew(now time.Time) error {
	if t.path == "" {
		return nil
	}
	text, err := os.ReadFile(t.path)
	if err != nil {
		return fmt.Errorf("cannot read the token file: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token, t.until = strings.TrimSpace(string(text)), now.Add(time.Minute)
	return nil
}

func (t *tokenFile) current(now time.Time) string {
	if t.path == "" {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.until) {
		return ""
	}
	return t.token
}
