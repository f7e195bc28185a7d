package flow

import (
	"context"
	"fmt"
)

// Drain refuses new fibers and waits until the live fibers have ended. It does not cancel them. Drain returns the cause
// of ctx if ctx ends first.
func (e *Engine) Drain(ctx context.Context) error {
	if !e.made() {
		return nil
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	return e.waitEmpty(ctx)
}

// Close refuses new fibers, cancels the live ones with cause ErrClosed, and waits until their callbacks have run. Then
// it stops all goroutines and timers of the engine. If ctx ends first, Close returns an error that matches ErrStuck and
// the cause of ctx, and names the fibers that did not stop. Close may then be called again. It must not be called from
// a step or a callback.
func (e *Engine) Close(ctx context.Context) error {
	if !e.made() {
		return nil
	}
	var calls cancels
	e.mu.Lock()
	e.closed = true
	for f := e.live.next; f != e.live; f = f.next {
		if !f.isCursor() {
			e.cancel(f, ErrClosed, &calls)
		}
	}
	e.mu.Unlock()
	calls.run()
	if err := e.waitEmpty(ctx); err != nil {
		return fmt.Errorf("cannot close engine: %w: %v: %w", ErrStuck, e.names(5), err)
	}
	e.mu.Lock()
	e.halted = true
	e.nidle, e.workers = 0, nil
	e.timers.stop(&e.wg)
	e.spans.stop(e)
	e.idle.Broadcast()
	e.mu.Unlock()
	e.wg.Wait()
	return nil
}

func (e *Engine) waitEmpty(ctx context.Context) error {
	e.mu.Lock()
	if e.nlive == 0 {
		e.mu.Unlock()
		return nil
	}
	if e.empty == nil {
		e.empty = make(chan struct{})
	}
	empty := e.empty
	e.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *Engine) names(limit int) []string {
	var names []string
	for info := range e.Fibers() {
		if len(names) == limit {
			return append(names, "…")
		}
		names = append(names, info.Path+ofKey(info.Key))
	}
	return names
}
