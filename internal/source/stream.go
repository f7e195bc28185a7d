package source

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// Sizes of read buffers in bytes. A stream starts with small buffers, since most watches are idle, and enlarges them
// when reads fill them.
const (
	smallBuffer = 16 << 10
	largeBuffer = 512 << 10
	batchEvents = 512
	smallEvents = 32
	batchCount  = 3 // one for the reader, one in the channel, one for the consumer
)

// batch is a read buffer with its decoded events. It alternates between the reader of a stream and the goroutine of the
// scope. Only one of them owns it at a time.
type batch struct {
	data   []byte
	from   int // bytes before are consumed
	to     int // bytes after are free
	events []event
	n      int
	err    error // end of the stream; io.EOF: no error
}

func (b *batch) slot() *event {
	if b.n == len(b.events) {
		b.events = append(b.events, event{})
	}
	return &b.events[b.n]
}

// reserve makes room for a read. It may move bytes, so the batch must have no events yet.
func (b *batch) reserve(size int) {
	if len(b.data)-b.to >= size/4 && b.to < len(b.data) {
		return
	}
	held := b.to - b.from
	if b.from > 0 && held <= len(b.data)/2 {
		copy(b.data, b.data[b.from:b.to])
	} else {
		grown := make([]byte, max(size, 2*len(b.data), 2*held))
		copy(grown, b.data[b.from:b.to])
		b.data = grown
	}
	b.from, b.to = 0, held
}

// stream is one open response of the server. Its reader goroutine ends after it sends a batch with err set, or when
// close is called. close waits for it.
type stream struct {
	out      chan *batch
	free     chan *batch
	cancel   context.CancelFunc
	done     chan struct{}
	progress atomic.Int64 // time of the last byte, in nanoseconds after began
	began    time.Time
	retire   atomic.Pointer[func()] // retires its connection; nil: no connection yet
	limit    time.Duration          // timeout that was requested from the server
	inside   atomic.Bool            // the bytes read so far end within a value

	// Owned by the reader.
	contentType string // content type of the response
	size        int    // size of the next buffer
	smallReads  int    // consecutive reads that filled little of their buffers

	// Owned by the consumer.
	current *batch
	at      int // index of the next event in current
}

// opener sends the request and returns the body of the response and its decoder.
type opener func(ctx context.Context, st *stream) (io.ReadCloser, decoder, error)

// openStream sends the request of a stream in a new goroutine. timeout is the one that was requested from the server; 0:
// none. The caller closes the stream.
func openStream(ctx context.Context, timeout time.Duration, open opener) *stream {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{
		out: make(chan *batch, 1), free: make(chan *batch, batchCount), cancel: cancel,
		done: make(chan struct{}), began: time.Now(), limit: timeout, size: smallBuffer,
	}
	for range batchCount {
		s.free <- &batch{}
	}
	go func() {
		defer close(s.done)
		defer cancel()
		s.run(ctx, open)
	}()
	return s
}

// close ends the stream in any state and waits for its goroutines.
func (s *stream) close() {
	s.cancel()
	<-s.done
}

// buffered returns the next event that has arrived, or the error that ended the stream. If both are nil, the caller
// must receive a batch from out.
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
	s.recycle(b)
	return nil, nil
}

// batches returns the channel of the batches that have arrived.
func (s *stream) batches() <-chan *batch { return s.out }

// receive makes the events of a batch available to buffered. It returns false if the batch has no events but the end of
// the stream.
func (s *stream) receive(b *batch) (hasEvents bool) {
	s.current, s.at = b, 0
	return b.n > 0
}

// recycle returns a batch to the reader.
func (s *stream) recycle(b *batch) {
	if len(b.data) > 2*largeBuffer {
		b.data = nil // release the memory of a huge object
	}
	s.free <- b
}

// connected sets the function that retires the connection of the stream.
func (s *stream) connected(retire func()) { s.retire.Store(&retire) }

// abandon retires the connection of the stream, so that the next request opens a new one.
func (s *stream) abandon() {
	if retire := s.retire.Load(); retire != nil {
		(*retire)()
	}
}

// answered sets the content type of the response. Only the opener calls it.
func (s *stream) answered(contentType string) { s.contentType = contentType }

// isWithinEvent reports whether the bytes read so far end within a value.
func (s *stream) isWithinEvent() bool { return s.inside.Load() }

// isDue reports whether the timeout that was requested from the server has passed.
func (s *stream) isDue() bool { return time.Since(s.began) >= s.limit }

// hasBatch reports whether a batch waits to be received.
func (s *stream) hasBatch() bool { return len(s.out) > 0 }

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
		case b := <-s.out:
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
func (s *stream) idle() time.Duration {
	return time.Since(s.began) - time.Duration(s.progress.Load())
}

func (s *stream) run(ctx context.Context, open opener) {
	b := s.take(ctx)
	if b == nil {
		return
	}
	body, dec, err := open(ctx, s)
	if err != nil {
		b.err = err
		s.send(ctx, b)
		return
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // closing the body ends a blocked read
		defer close(closed)
		body.Close()
	})
	defer func() {
		if stop() {
			body.Close()
		} else {
			<-closed
		}
	}()
	s.touch()
	b.slot().reset(JSON)
	b.slot().kind = evOpened
	b.n = 1
	if b = s.pass(ctx, b); b == nil {
		return
	}
	for {
		err := s.decode(b, dec, false)
		if b.n > 0 && err == nil {
			if b = s.pass(ctx, b); b == nil {
				return
			}
			continue
		}
		s.inside.Store(b.from < b.to)
		if err == nil {
			err = s.fill(b, body)
		}
		if err == io.EOF {
			err = s.last(ctx, &b, dec)
		}
		if err != nil {
			if p, is := err.(*ProtocolError); is {
				p.ContentType = s.contentType
			}
			if b != nil {
				b.err = err
				s.send(ctx, b)
			}
			return
		}
	}
}

// decode decodes the events in the batch. It returns nil when it needs more bytes.
func (s *stream) decode(b *batch, dec decoder, eof bool) error {
	for b.n < batchEvents && (b.from < b.to || eof) {
		n, got, err := dec.next(b.data[b.from:b.to], eof, b.slot())
		b.from += n
		if got {
			b.n++
			continue
		}
		if isShort(err) {
			if eof {
				return err
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// last decodes the remaining bytes after the end of the body. It returns io.ErrUnexpectedEOF for a truncated value.
func (s *stream) last(ctx context.Context, b **batch, dec decoder) error {
	for {
		err := s.decode(*b, dec, true)
		switch {
		case err == frame.ErrShort && (*b).from == (*b).to:
			return io.EOF
		case err == frame.ErrShort:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		if *b = s.pass(ctx, *b); *b == nil {
			return io.EOF
		}
	}
}

func (s *stream) fill(b *batch, body io.Reader) error {
	if b.to-b.from > maxFrame {
		return &ProtocolError{What: "value of more than 512 MiB"}
	}
	b.reserve(s.size)
	n, err := body.Read(b.data[b.to:])
	if n > 0 {
		if s.idle() > time.Second {
			s.size, s.smallReads = smallBuffer, 0 // most watches idle after their start, and there may be hundreds
		}
		s.touch()
		b.to += n
		s.adapt(b)
		return nil // the next read returns the error again
	}
	return err
}

// adapt doubles the buffer size when a read fills the buffer and halves it after many small reads.
func (s *stream) adapt(b *batch) {
	switch {
	case b.to == len(b.data):
		s.size, s.smallReads = min(2*s.size, largeBuffer), 0
	case b.to < s.size/4:
		if s.smallReads++; s.smallReads > 64 {
			s.size, s.smallReads = max(s.size/2, smallBuffer), 0
		}
	default:
		s.smallReads = 0
	}
}

func (s *stream) touch() { s.progress.Store(int64(time.Since(s.began))) }

// pass sends a batch and returns another one, which begins with the bytes that are not decoded yet.
func (s *stream) pass(ctx context.Context, b *batch) *batch {
	next := s.take(ctx)
	if next == nil {
		return nil
	}
	rest := b.data[b.from:b.to]
	if size := max(s.size, len(rest)); len(next.data) < size || len(next.data) > 4*max(size, smallBuffer) {
		next.data = make([]byte, size)
	}
	next.from, next.to = 0, copy(next.data, rest)
	if !s.send(ctx, b) {
		return nil
	}
	return next
}

func (s *stream) take(ctx context.Context) *batch {
	select {
	case b := <-s.free:
		b.from, b.to, b.n, b.err = 0, 0, 0, nil
		if s.size == smallBuffer && len(b.events) > smallEvents {
			b.events = nil
		}
		return b
	case <-ctx.Done():
		return nil
	}
}

func (s *stream) send(ctx context.Context, b *batch) bool {
	select {
	case s.out <- b:
		return true
	case <-ctx.Done():
		return false
	}
}
