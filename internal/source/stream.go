package source

import (
	"context"
	"io"
	"sync/atomic"
	"time"
)

// stream is one open response of the server. Its reader ends after it sends a batch with err set, or when close is
// called. close waits for it. The goroutine that opened the stream consumes it.
type stream struct {
	reader *bodyReader
	cancel context.CancelFunc
	done   chan struct{}
	due    time.Time              // end of the timeout that was requested from the server
	retire atomic.Pointer[func()] // retires its connection; nil: no connection yet

	// Owned by the consumer.
	current *batch
	at      int // index of the next event in current
}

// opener sends the request and returns the body of the response and its decoder.
type opener func(ctx context.Context, st *stream) (io.ReadCloser, decoder, error)

// openStream sends the request of a stream in a new goroutine. timeout is the one that was requested from the server.
// The caller closes the stream.
func openStream(ctx context.Context, timeout time.Duration, open opener) *stream {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{reader: newBodyReader(), cancel: cancel, done: make(chan struct{}), due: time.Now().Add(timeout)}
	go func() {
		defer close(s.done)
		defer cancel()
		s.reader.run(ctx, func(ctx context.Context) (io.ReadCloser, decoder, error) { return open(ctx, s) })
	}()
	return s
}

// close ends the stream in any state and waits for its goroutines.
func (s *stream) close() {
	s.cancel()
	<-s.done
}

// buffered returns the next event that has arrived, or the error that ended the stream. If both are nil, the caller
// must receive one of batches.
func (s *stream) buffered() (*event, error) {
	b := s.current
	if b == nil {
		return nil, nil
	}
	if s.at < b.n {
		s.at++
		return &b.events[s.at-1], nil
	}
	if b.err != nil {
		return nil, b.err
	}
	s.current = nil
	s.reader.recycle(b)
	return nil, nil
}

// batches returns the channel of the batches that have arrived.
func (s *stream) batches() <-chan *batch { return s.reader.batches() }

// receive makes the events of a batch available to buffered. It returns false if the batch has no events but the end of
// the stream.
func (s *stream) receive(b *batch) (hasEvents bool) {
	s.current, s.at = b, 0
	return b.n > 0
}

// lend lets the reader of the stream handle batches, until takeBack; see bodyReader. buffered has returned neither an
// event nor an error.
func (s *stream) lend(handle func(*batch) error) { s.reader.lend(handle) }

// takeBack ends lend. It waits for a running call.
func (s *stream) takeBack() { s.reader.takeBack() }

// connected sets the function that retires the connection of the stream.
func (s *stream) connected(retire func()) { s.retire.Store(&retire) }

// abandon retires the connection of the stream, so that the next request opens a new one.
func (s *stream) abandon() {
	if retire := s.retire.Load(); retire != nil {
		(*retire)()
	}
}

// answered sets the content type of the response. Only the opener calls it.
func (s *stream) answered(contentType string) { s.reader.setContentType(contentType) }

// isWithinEvent reports whether the bytes read so far end within a value.
func (s *stream) isWithinEvent() bool { return s.reader.isWithinEvent() }

// isDue reports whether the timeout that was requested from the server has passed.
func (s *stream) isDue() bool { return !time.Now().Before(s.due) }

// hasBatch reports whether a batch waits to be received.
func (s *stream) hasBatch() bool { return len(s.batches()) > 0 }

// await waits for the next batch. If no byte arrives for patience, it abandons the connection and returns ErrStalled.
func (s *stream) await(ctx context.Context, timer *time.Timer, patience time.Duration) error {
	arrived, err := s.arrives(ctx, timer, patience)
	if err == nil && !arrived {
		s.abandon()
		return ErrStalled
	}
	return err
}

// arrives waits for the next batch. It returns false if no byte arrives for patience.
func (s *stream) arrives(ctx context.Context, timer *time.Timer, patience time.Duration) (bool, error) {
	timer.Reset(patience)
	for {
		select {
		case b := <-s.batches():
			s.receive(b)
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-timer.C:
			idle := s.idle()
			if idle >= patience {
				return false, nil
			}
			timer.Reset(patience - idle)
		}
	}
}

// readList passes the events of a list to handle, until handle returns true or an error, or the list ends. patience is
// the longest time without a byte.
func (s *stream) readList(
	ctx context.Context, patience time.Duration, handle func(*event) (done bool, err error),
) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	complete := false
	for {
		e, err := s.buffered()
		switch {
		case e != nil:
			complete = complete || e.kind == evListEnd
			if done, err := handle(e); done || err != nil {
				return err
			}
		case err == io.EOF && complete:
			return nil
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return &ProtocolError{What: "list is cut", Err: io.ErrUnexpectedEOF}
		case err != nil:
			return err
		default:
			if err := s.await(ctx, timer, patience); err != nil {
				return err
			}
		}
	}
}

// idle returns the time since the last byte.
func (s *stream) idle() time.Duration { return s.reader.idle() }
