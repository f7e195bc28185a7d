// Package inherit passes the logger of a host to a component that has none of its own, after the component was made.
//
//	e.log, e.slot = inherit.Logger(options.Logger)
//	e.slot.Take(host.Logger())             // e.log now writes to the logger of host, unless options had one
//	l.slot.From(ctx)                       // the same for a hosted function: ctx has the logger of the host
package inherit

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// Slot receives the logger of a host. The zero value belongs to a component with its own logger and ignores loggers. It
// is safe for concurrent use.
type Slot struct{ to *atomic.Pointer[slog.Handler] }

// Logger returns own. If own is nil, it returns a logger that discards its records until its slot has taken a logger.
func Logger(own *slog.Logger) (*slog.Logger, Slot) {
	if own != nil {
		return own, Slot{}
	}
	s := Slot{&atomic.Pointer[slog.Handler]{}}
	return slog.New(handler{to: s.to}), s
}

// Take makes the logger write to the handler of log. Only the first non-nil log has an effect.
func (s Slot) Take(log *slog.Logger) {
	if s.to == nil || log == nil {
		return
	}
	h := log.Handler()
	s.to.CompareAndSwap(nil, &h)
}

// From calls Take with the logger that With has added to ctx, if any.
func (s Slot) From(ctx context.Context) { s.Take(From(ctx)) }

type key struct{}

// With returns a context that carries the logger of the host.
func With(ctx context.Context, log *slog.Logger) context.Context {
	return context.WithValue(ctx, key{}, log)
}

// From returns the logger of the host, or nil.
func From(ctx context.Context) *slog.Logger {
	log, _ := ctx.Value(key{}).(*slog.Logger)
	return log
}

// handler forwards records to a handler that is set later.
type handler struct {
	to   *atomic.Pointer[slog.Handler]
	wrap func(slog.Handler) slog.Handler // applies WithAttrs and WithGroup; nil: none
}

func (h handler) target() slog.Handler {
	p := h.to.Load()
	switch {
	case p == nil:
		return slog.DiscardHandler
	case h.wrap == nil:
		return *p
	}
	return h.wrap(*p)
}

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	p := h.to.Load()
	return p != nil && (*p).Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error { return h.target().Handle(ctx, r) }

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return h.with(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

func (h handler) with(more func(slog.Handler) slog.Handler) slog.Handler {
	before := h.wrap
	if before == nil {
		return handler{h.to, more}
	}
	return handler{h.to, func(to slog.Handler) slog.Handler { return more(before(to)) }}
}
