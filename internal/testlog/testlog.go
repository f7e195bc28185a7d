// Package testlog has logs that tests can read while they are written.
package testlog

import (
	"bytes"
	"log/slog"
	"sync"
)

// Book is what was written so far, to a log say, or by a process. The zero value is empty. It is safe for concurrent
// use.
type Book struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

// String returns what is in the book.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// Take returns what is in the book, which is empty then.
func (b *Book) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.all.Reset()
	return b.all.String()
}

// Logger returns one that writes lines of text into the book, from level Info on.
func (b *Book) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
