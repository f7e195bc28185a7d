package store

import (
	"slices"
	"sync"

	"github.com/fairlead-io/fairlead/internal/source"
)

// statusBoard distributes changes of status to watches.
type statusBoard struct {
	mu       sync.Mutex // a leaf
	watchers []*StatusWatch
	closed   bool
}

// StatusWatch receives every change of the status of a scope.
type StatusWatch struct {
	// C receives the changes. A full buffer drops its oldest change. C is closed by Close and with the store.
	C      <-chan source.Status
	c      chan source.Status
	board  *statusBoard
	closed bool // guarded by the lock of the board
}

const statusBuffer = 64

// Close ends the watch.
func (w *StatusWatch) Close() {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	w.close()
	w.board.watchers = slices.DeleteFunc(w.board.watchers, func(o *StatusWatch) bool { return o == w })
}

// close is Close; the caller holds the lock of the board.
func (w *StatusWatch) close() {
	if !w.closed {
		w.closed = true
		close(w.c)
	}
}

// send drops the oldest unread status if there is no room. The caller holds the lock of the board.
func (w *StatusWatch) send(st source.Status) {
	for {
		select {
		case w.c <- st:
			return
		default:
		}
		select {
		case <-w.c:
		default:
		}
	}
}

// watch adds a watch, which receives the present statuses first.
func (b *statusBoard) watch(present []source.Status) *StatusWatch {
	c := make(chan source.Status, statusBuffer)
	w := &StatusWatch{C: c, c: c, board: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		w.close()
		return w
	}
	for _, st := range present {
		w.send(st)
	}
	b.watchers = append(b.watchers, w)
	return w
}

func (b *statusBoard) send(st source.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.watchers {
		w.send(st)
	}
}

func (b *statusBoard) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, w := range b.watchers {
		w.close()
	}
	b.watchers = nil
}
