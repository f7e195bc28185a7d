package apiserver

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch is an open watch that a test can manipulate. Its methods queue an action and return at once. Actions run in
// order, after the events stored before them. The methods do nothing after the watch has ended. Watch is safe for
// concurrent use.
type Watch struct {
	Request Request

	mu    sync.Mutex
	queue []func(*stream) bool
	wake  chan struct{}
}

// Watches returns the matching open watches in order of arrival.
func (s *Server) Watches(m Match) []*Watch {
	s.mu.Lock()
	all := make([]*Watch, 0, len(s.watches))
	for w := range s.watches {
		all = append(all, w)
	}
	s.mu.Unlock()
	all = slices.DeleteFunc(all, func(w *Watch) bool { return !m.matches(&w.Request) })
	slices.SortFunc(all, func(a, b *Watch) int { return a.Request.ID - b.Request.ID })
	return all
}

// Bookmark sends a bookmark with the present version on every matching open watch that allows bookmarks.
func (s *Server) Bookmark(m Match) {
	for _, w := range s.Watches(m) {
		w.Bookmark()
	}
}

func (s *Server) openWatch(req Request) *Watch {
	w := &Watch{Request: req, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = true
	return w
}

func (s *Server) closeWatch(w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
}

// do queues fn, which reports whether the stream continues.
func (w *Watch) do(fn func(*stream) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, fn)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Bookmark sends a bookmark with the present version, if the watch allows bookmarks.
func (w *Watch) Bookmark() {
	w.do(func(s *stream) bool {
		if s.bookmarks {
			s.bookmark(nil)
		}
		return true
	})
}

// BookmarkAt sends a bookmark with this version, even if it is wrong.
func (w *Watch) BookmarkAt(version string) {
	w.do(func(s *stream) bool { s.bookmarkAt(version, nil); return true })
}

// Error sends an ERROR event and ends the stream.
func (w *Watch) Error(status metav1.Status) {
	w.do(func(s *stream) bool { s.end(status); return false })
}

// End ends the stream cleanly, as at timeoutSeconds.
func (w *Watch) End() { w.do(func(*stream) bool { return false }) }

// Cut closes the connection (HTTP/1.1) or resets the stream (HTTP/2).
func (w *Watch) Cut() {
	w.do(func(s *stream) bool { s.x.out.flush(); s.x.out.abort(); return false })
}

// Send sends a frame of this type with an object that is already encoded in the encoding of the watch.
func (w *Watch) Send(typ watch.EventType, body []byte) {
	w.do(func(s *stream) bool { s.raw(typ, body); return true })
}

// Write sends these bytes unchanged. They need not be a frame.
func (w *Watch) Write(b []byte) {
	w.do(func(s *stream) bool { s.x.out.buf = append(s.x.out.buf, b...); return true })
}

// commands runs the queued actions. It returns false at the end of the stream.
func (w *stream) commands() bool {
	w.handle.mu.Lock()
	queue := w.handle.queue
	w.handle.queue = nil
	w.handle.mu.Unlock()
	for _, fn := range queue {
		if !w.x.plan.watch.silent {
			if _, _, more := w.deliver(); !more {
				return false
			}
		}
		if !fn(w) {
			return false
		}
	}
	return true
}
