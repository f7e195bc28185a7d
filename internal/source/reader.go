package source

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/frame"
	"github.com/fairlead-io/fairlead/internal/protect"
)

// Sizes of read buffers in bytes. A stream starts with small buffers, since most watches are idle, and enlarges them
// when reads fill them.
const (
	smallBuffer = 16 << 10
	largeBuffer = 512 << 10
	batchEvents = 512
	smallEvents = 32
	batchCount  = 3 // one for the reader, one in the channel, one for the consumer
	// directEvents is the number of events from which a batch is passed on, so that reading and applying run in parallel.
	directEvents = 16
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

// nextFree returns the event to decode into. It is part of the batch once n counts it.
func (b *batch) nextFree() *event {
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

// bodyReader reads the body of a response in a goroutine of its own and decodes it into batches. Batches circulate: out
// has those with events, free those that the consumer has returned.
//
// A consumer that waits may let the reader handle batches itself (lend). An event then causes one change of goroutine
// less, which costs more than the event at a low rate.
type bodyReader struct {
	out      chan *batch
	free     chan *batch
	turn     chan struct{}      // has a value while the consumer lets the reader handle batches
	handle   func(*batch) error // of the consumer; guarded by turn
	began    time.Time
	progress atomic.Int64 // time of the last byte, in nanoseconds after began
	inside   atomic.Bool  // the bytes read so far end within a value
	size     atomic.Int64 // size of the next buffer; only the goroutine of the reader sets it

	// Owned by the goroutine of the reader.
	contentType string // of the response
	smallReads  int    // consecutive reads that filled little of their buffers
}

func newBodyReader() *bodyReader {
	r := &bodyReader{
		out: make(chan *batch, 1), free: make(chan *batch, batchCount), turn: make(chan struct{}, 1), began: time.Now(),
	}
	r.size.Store(smallBuffer)
	for range batchCount {
		r.free <- &batch{}
	}
	return r
}

// idle returns the time since the last byte. Any goroutine may call it.
func (r *bodyReader) idle() time.Duration {
	return time.Since(r.began) - time.Duration(r.progress.Load())
}

// isWithinEvent reports whether the bytes read so far end within a value. Any goroutine may call it.
func (r *bodyReader) isWithinEvent() bool { return r.inside.Load() }

// batches returns the channel of the batches to consume.
func (r *bodyReader) batches() <-chan *batch { return r.out }

// setContentType sets the content type of the response, for errors. Only the opener calls it.
func (r *bodyReader) setContentType(contentType string) { r.contentType = contentType }

// recycle returns a consumed batch.
func (r *bodyReader) recycle(b *batch) {
	if len(b.data) > 2*largeBuffer || r.isTooLarge(b) {
		*b = batch{} // release the memory of a huge object, or of initial events
	}
	r.free <- b
}

// lend lets the reader handle batches with a function of the consumer, on its own goroutine, until takeBack. The reader
// stops after an error of handle, which becomes that of the last batch.
func (r *bodyReader) lend(handle func(*batch) error) {
	r.handle = handle
	r.turn <- struct{}{}
}

// takeBack ends lend. It waits for a running call.
func (r *bodyReader) takeBack() { <-r.turn }

// errLeft is the error of a batch whose handling has called runtime.Goexit.
var errLeft = errors.New("the goroutine of the watch was ended")

// handleDirectly handles a batch on the goroutine of the reader. It returns false if the consumer must do it: for many
// events, and while the consumer is busy or has not handled an earlier batch yet.
func (r *bodyReader) handleDirectly(ctx context.Context, b *batch) (done bool, err error) {
	if b.n >= directEvents {
		return false, nil
	}
	select {
	case <-r.turn:
	default:
		return false, nil
	}
	defer func() { r.turn <- struct{}{} }()
	if len(r.free) < batchCount-1 {
		return false, nil
	}
	if p := protect.CallOr(func() { err = r.handle(b) }, func() {
		b.n, b.err = 0, errLeft
		r.send(ctx, b)
	}); p != nil {
		return true, p
	}
	return true, err
}

// reuse makes a batch empty after its events were handled. Bytes that are not decoded yet stay.
func (r *bodyReader) reuse(b *batch) {
	b.n = 0
	r.shrink(b)
	if b.from == b.to && r.isTooLarge(b) {
		b.data, b.from, b.to = nil, 0, 0
	}
}

// relax releases large buffers after the initial events, since most watches idle after them.
func (r *bodyReader) relax() {
	r.restart()
	for range len(r.free) {
		r.recycle(<-r.free)
	}
}

// restart makes the next buffers small.
func (r *bodyReader) restart() {
	r.size.Store(smallBuffer)
	r.smallReads = 0
}

// isTooLarge reports whether the buffer of a batch is much larger than the stream needs by now.
func (r *bodyReader) isTooLarge(b *batch) bool { return int64(len(b.data)) > 4*r.size.Load() }

// shrink releases the memory of many events.
func (r *bodyReader) shrink(b *batch) {
	if r.size.Load() == smallBuffer && len(b.events) > smallEvents {
		b.events = nil
	}
}

// run opens the body and reads it until its end, or until ctx is done. The last batch has err set.
func (r *bodyReader) run(ctx context.Context, open func(context.Context) (io.ReadCloser, decoder, error)) {
	b := r.take(ctx)
	if b == nil {
		return
	}
	body, dec, err := open(ctx)
	if err != nil {
		b.err = err
		r.send(ctx, b)
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
	r.touch()
	b.nextFree().reset(JSON)
	b.nextFree().kind = evOpened
	b.n = 1
	if b = r.exchange(ctx, b); b == nil {
		return
	}
	for {
		err := r.decode(b, dec, false)
		if b.n > 0 && err == nil {
			if b.events[b.n-1].initialEnd {
				r.relax()
			}
			done, err := r.handleDirectly(ctx, b)
			if err != nil {
				b.n, b.err = 0, err
				r.send(ctx, b)
				return
			}
			if done {
				r.reuse(b)
			} else if b = r.exchange(ctx, b); b == nil {
				return
			}
			continue
		}
		r.inside.Store(b.from < b.to)
		if err == nil {
			err = r.fill(b, body)
		}
		if err == io.EOF {
			err = r.decodeRest(ctx, &b, dec)
		}
		if err != nil {
			if p, is := err.(*ProtocolError); is {
				p.ContentType = r.contentType
			}
			if b != nil {
				b.err = err
				r.send(ctx, b)
			}
			return
		}
	}
}

// decode decodes the events in the batch. It returns nil when it needs more bytes.
func (r *bodyReader) decode(b *batch, dec decoder, eof bool) error {
	for b.n < batchEvents && (b.from < b.to || eof) {
		n, got, err := dec.next(b.data[b.from:b.to], eof, b.nextFree())
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

// decodeRest decodes the remaining bytes after the end of the body. It returns io.ErrUnexpectedEOF for a truncated
// value.
func (r *bodyReader) decodeRest(ctx context.Context, b **batch, dec decoder) error {
	for {
		err := r.decode(*b, dec, true)
		switch {
		case err == frame.ErrShort && (*b).from == (*b).to:
			return io.EOF
		case err == frame.ErrShort:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		if *b = r.exchange(ctx, *b); *b == nil {
			return io.EOF
		}
	}
}

func (r *bodyReader) fill(b *batch, body io.Reader) error {
	if b.to-b.from > maxFrame {
		return &ProtocolError{What: "value of more than 512 MiB"}
	}
	b.reserve(int(r.size.Load()))
	n, err := body.Read(b.data[b.to:])
	if n > 0 {
		if r.idle() > time.Second {
			r.restart() // most watches idle after their start, and there may be hundreds
		}
		r.touch()
		b.to += n
		r.adapt(b)
		return nil // the next read returns the error again
	}
	return err
}

// adapt doubles the buffer size when a read fills the buffer and halves it after many small reads.
func (r *bodyReader) adapt(b *batch) {
	size := int(r.size.Load())
	switch {
	case b.to == len(b.data):
		r.size.Store(int64(min(2*size, largeBuffer)))
		r.smallReads = 0
	case b.to < size/4:
		if r.smallReads++; r.smallReads > 64 {
			r.size.Store(int64(max(size/2, smallBuffer)))
			r.smallReads = 0
		}
	default:
		r.smallReads = 0
	}
}

func (r *bodyReader) touch() { r.progress.Store(int64(time.Since(r.began))) }

// exchange sends a batch and returns another one, which begins with the bytes that are not decoded yet.
func (r *bodyReader) exchange(ctx context.Context, b *batch) *batch {
	next := r.take(ctx)
	if next == nil {
		return nil
	}
	rest := b.data[b.from:b.to]
	if size := max(int(r.size.Load()), len(rest)); len(next.data) < size || len(next.data) > 4*max(size, smallBuffer) {
		next.data = make([]byte, size)
	}
	next.from, next.to = 0, copy(next.data, rest)
	if !r.send(ctx, b) {
		return nil
	}
	return next
}

func (r *bodyReader) take(ctx context.Context) *batch {
	select {
	case b := <-r.free:
		b.from, b.to, b.n, b.err = 0, 0, 0, nil
		r.shrink(b)
		return b
	case <-ctx.Done():
		return nil
	}
}

func (r *bodyReader) send(ctx context.Context, b *batch) bool {
	select {
	case r.out <- b:
		return true
	case <-ctx.Done():
		return false
	}
}
