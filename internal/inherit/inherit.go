// Package inherit gives a logger to what has none of its own: from who hosts it, after it was made.
//
//	e.log, e.slot = inherit.Logger(options.Logger)
//	e.slot.Take(host.Logger())             // now what e.log is given goes there, unless options had a logger
//	l.slot.From(ctx)                       // the same for what is hosted as a function: ctx has the host's logger
package inherit

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// Slot is where the logger of a host is put. The zero value, of who has a logger of its own, ignores it. It is safe for
// concurrent use.
type Slot struct{ to *atomic.Pointer[slog.Handler] }

// Logger returns own, or else a logger that discards what it is given until its slot has taken that of a host.
func Logger(own *slog.Logger) (*slog.Logger, Slot) {
	if own != nil {
		return own, Slot{}
	}
	s := Slot{&atomic.Pointer[slog.Handler]{}}
	return slog.New(handler{to: s.to}), s
}

// Take has the logger write where log does. The first one that is not nil counts.
func (s Slot) Take(log *slog.Logger) {
	if s.to == nil || log == nil {
		return
	}
	h := log.Handler()
	s.to.CompareAndSwap(nil, &h)
}

// From is Take of the logger that With has put into ctx, if any.
func (s Slot) From(ctx context.Context) { s.Take(From(ctx)) }

type key struct{}

// With returns a context for what is hosted, with the logger of the host.
func With(ctx context.Context, log *slog.Logger) context.Context {
	return context.WithValue(ctx, key{}, log)
}

// From returns the logger of the host; nil if there is none.
func From(ctx context.Context) *slog.Logger {
	log, _ := ctx.Value(key{}).(*slog.Logger)
	return log
}

// handler passes on to a handler that is known later.
type handler struct {
	to   *atomic.Pointer[slog.Handler]
	wrap func(slog.Handler) slog.Handler // With and WithGroup of the loggers made of this one; nil: none
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
