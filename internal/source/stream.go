package source

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// Sizes of read buffers. A stream starts small, since most watches are idle, and grows to what a busy one fills.
const (
	smallBuffer = 16 << 10
	largeBuffer = 512 << 10
	batchEvents = 512
	smallEvents = 32
	batchCount  = 3 // one being read into, one on the way, one being applied
)

// batch is a read buffer with the events that were found in it. It goes round between the reader of a stream and the
// goroutine of the scope, and belongs to one of them at a time.
type batch struct {
	data   []byte
	from   int // bytes before are done with
	to     int // bytes behind are free
	events []event
	n      int
	err    error // the stream has ended; io.EOF: as it should
}

func (b *batch) slot() *event {
	if b.n == len(b.events) {
		b.events = append(b.events, event{})
	}
	return &b.events[b.n]
}

// room makes place for a read, without moving bytes that events point to: there are none when it is called.
func (b *batch) room(size int) {
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

// stream is one open answer of the server. Its reader goroutine ends with a batch that has err set, or when close is
// called; close waits for it.
type stream struct {
	out        chan *batch
	free       chan *batch
	cancel     context.CancelFunc
	done       chan struct{}
	progress   atomic.Int64 // time of the last byte, in nanoseconds since began
	began      time.Time
	generation atomic.Pointer[generation] // whose connection it uses
	limit      time.Duration              // after which the server was asked to end it
	inside     atomic.Bool                // what has been read ends within a value

	// Of the reader.
	contentType string // of the answer
	size        int    // of the next buffer
	quiet       int    // batches in a row that filled little of theirs

	// Of the consumer.
	current *batch
	at      int // next event of current
}

// opener makes the request and says how to decode its answer.
type opener func(ctx context.Context, st *stream) (io.ReadCloser, decoder, error)

func openStream(ctx context.Context, open opener) *stream {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{
		out: make(chan *batch, 1), free: make(chan *batch, batchCount), cancel: cancel,
		done: make(chan struct{}), began: time.Now(), size: smallBuffer,
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

// close ends the stream in whatever state it is and waits until nothing of it is left.
func (s *stream) close() {
	s.cancel()
	<-s.done
}

// buffered returns the next event that has arrived, or why there will be none. Both are nil when it must be waited for,
// by taking a batch from out.
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

func (s *stream) receive(b *batch) { s.current, s.at = b, 0 }

// recycle gives a batch back to the reader.
func (s *stream) recycle(b *batch) {
	if len(b.data) > 2*largeBuffer {
		b.data = nil // a huge object passed through; it shall not cost memory for ever
	}
	s.free <- b
}

// idle is how long nothing has been read.
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
	stop := context.AfterFunc(ctx, func() { // a read that the transport would not end ends now
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

// decode finds the events in what has been read. It returns nil when more must be read.
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

// last decodes what is left when the body has ended. A value that the end cuts is io.ErrUnexpectedEOF.
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
	b.room(s.size)
	n, err := body.Read(b.data[b.to:])
	if n > 0 {
		if s.idle() > time.Second {
			s.size, s.quiet = smallBuffer, 0 // most watches idle after their beginning, and there may be hundreds
		}
		s.touch()
		b.to += n
		s.adapt(b)
		return nil // an error comes again
	}
	return err
}

// adapt lets buffers grow while reads fill them, and shrink when they have not for a while.
func (s *stream) adapt(b *batch) {
	switch {
	case b.to == len(b.data):
		s.size, s.quiet = min(2*s.size, largeBuffer), 0
	case b.to < s.size/4:
		if s.quiet++; s.quiet > 64 {
			s.size, s.quiet = max(s.size/2, smallBuffer), 0
		}
	default:
		s.quiet = 0
	}
}

func (s *stream) touch() { s.progress.Store(int64(time.Since(s.began))) }

// pass hands a batch over and goes on with another one, which gets the bytes that are not decoded yet.
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
