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

// renewal reloads the credentials, once for all calls that were refused in the meantime.
type renewal struct {
	reload func(ctx context.Context) error // may be nil
	turn   chan struct{}                   // held by the call that reloads
	done   atomic.Uint64                   // number of reloads
}

// renew reloads the credentials after a 401. then is the value of done when the refused try was sent.
func (c *Client) renew(ctx context.Context, then uint64) error {
	select {
	case c.renewal.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.renewal.turn }()
	if c.renewal.done.Load() != then {
		return nil // another call has reloaded them
	}
	err := errors.Join(c.renewal.protect(ctx), c.token.renew(time.Now()))
	if err == nil {
		c.renewal.done.Add(1)
	}
	return err
}

// protect calls reload and converts its panic into an error.
func (r *renewal) protect(ctx context.Context) (err error) {
	if r.reload == nil {
		return nil
	}
	if p := protect.Call(func() { err = r.reload(ctx) }); p != nil {
		return fmt.Errorf("panic in the reload function: %w", p)
	}
	return err
}

// tokenFile re-reads a token file after a 401. client-go re-reads it every minute, which is too late after a 401. The
// token read here therefore applies for one minute only. Plug-ins and token sources of client-go renew themselves after
// a 401.
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
