// Package testlog has a buffer for logs that tests read while they are written.
package testlog

import (
	"bytes"
	"log/slog"
	"sync"
)

// Book is a buffer for the output of a log or a process. The zero value is empty. A Book is safe for concurrent use.
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

// String returns the content of the book.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// Take returns the content of the book and empties it.
func (b *Book) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.all.Reset()
	return b.all.String()
}

// Logger returns a logger that writes lines of text to the book, from level Info on.
func (b *Book) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
