package alloc_test

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// lagging delays all events of watches. Other requests are answered at once.
type lagging struct {
	http.RoundTripper
	by time.Duration
}

func (l lagging) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Has("watch") {
		b := &late{from: answer.Body, by: l.by, pieces: make(chan piece), done: make(chan struct{})}
		b.reading.Go(b.read)
		answer.Body = b
	}
	return answer, err
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (l lagging) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

type piece struct {
	due  time.Time
	data []byte
	err  error
}

// late is a body that is read at once and delivered later.
type late struct {
	from    io.ReadCloser
	by      time.Duration
	pieces  chan piece
	now     piece
	done    chan struct{}
	close   sync.Once
	reading sync.WaitGroup
}

func (b *late) read() {
	var queue []piece
	arrived := make(chan piece)
	b.reading.Go(func() {
		defer close(arrived)
		for {
			data := make([]byte, 4096)
			n, err := b.from.Read(data)
			select {
			case arrived <- piece{time.Now().Add(b.by), data[:n], err}:
			case <-b.done:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for {
		out, first := chan piece(nil), piece{}
		if len(queue) > 0 {
			out, first = b.pieces, queue[0]
		}
		select {
		case p, ok := <-arrived:
			if !ok {
				arrived = nil
				continue
			}
			queue = append(queue, p)
		case out <- first:
			queue = queue[1:]
		case <-b.done:
			return
		}
	}
}

func (b *late) Read(p []byte) (int, error) {
	for len(b.now.data) == 0 {
		if b.now.err != nil {
			return 0, b.now.err
		}
		select {
		case b.now = <-b.pieces:
		case <-b.done:
			return 0, http.ErrBodyReadAfterClose
		}
		select {
		case <-time.After(time.Until(b.now.due)):
		case <-b.done:
			return 0, http.ErrBodyReadAfterClose
		}
	}
	n := copy(p, b.now.data)
	b.now.data = b.now.data[n:]
	return n, nil
}

func (b *late) Close() error {
	var err error
	b.close.Do(func() {
		close(b.done)
		err = b.from.Close()
		b.reading.Wait()
	})
	return err
}
