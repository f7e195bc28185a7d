package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// lent is an open stream whose reader may handle batches itself. Run it in a bubble.
type lent struct {
	*stream
	server  *io.PipeWriter
	handled []string // names of the objects that the reader has handled
	before  func()   // called for each batch; nil: nothing
	fail    error    // returned by the function that handles
	version int
}

func newLent(t *testing.T) *lent {
	t.Helper()
	body, server := io.Pipe()
	l := &lent{server: server}
	l.stream = openStream(t.Context(), time.Minute, func(context.Context, *stream) (io.ReadCloser, decoder, error) {
		return body, newDecoder(true, "application/json"), nil
	})
	t.Cleanup(l.close)
	l.receive(<-l.batches())
	if got := l.names(); !slices.Equal(got, []string{""}) {
		t.Fatalf("got %q, want that the stream is open", got)
	}
	return l
}

// names consumes the current batch and returns the names of its objects.
func (l *lent) names() (names []string) {
	for e, _ := l.buffered(); e != nil; e, _ = l.buffered() {
		names = append(names, string(e.obj.Header.Name))
	}
	return names
}

func (l *lent) handle(b *batch) error {
	if l.before != nil {
		l.before()
	}
	for i := range b.events[:b.n] {
		l.handled = append(l.handled, string(b.events[i].obj.Header.Name))
	}
	return l.fail
}

// send sends changes of objects, all at once.
func (l *lent) send(names ...string) {
	var frames strings.Builder
	for _, name := range names {
		l.version++
		frames.WriteString(frameOf("MODIFIED", item(name, fmt.Sprint(l.version))))
	}
	_, _ = io.WriteString(l.server, frames.String())
	synctest.Wait()
}

// TestReaderHandlesWhileTheConsumerWaits: the reader handles batches between lend and takeBack, and the consumer
// handles the others.
func TestReaderHandlesWhileTheConsumerWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLent(t)
		l.lend(l.handle)
		l.send("a")
		l.send("b", "c")
		l.takeBack()
		if want := []string{"a", "b", "c"}; !slices.Equal(l.handled, want) || l.hasBatch() {
			t.Errorf("the reader has handled %q, want %q; a batch waits: %v", l.handled, want, l.hasBatch())
		}
		l.send("d")
		l.receive(<-l.batches())
		if got := l.names(); !slices.Equal(got, []string{"d"}) || len(l.handled) != 3 {
			t.Errorf("the consumer got %q, and the reader %q", got, l.handled)
		}
	})
}

// TestReaderKeepsTheOrder: while a batch waits for the consumer, or is being handled by it, the reader handles no later
// one.
func TestReaderKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLent(t)
		l.send("a")
		l.lend(l.handle)
		l.send("b")
		l.takeBack()
		l.receive(<-l.batches())
		l.lend(l.handle) // of a batch that the consumer still has
		synctest.Wait()
		l.takeBack()
		got := l.names()
		l.receive(<-l.batches())
		if got = append(got, l.names()...); !slices.Equal(got, []string{"a", "b"}) || len(l.handled) > 0 {
			t.Errorf("the consumer got %q, and the reader %q", got, l.handled)
		}
		l.lend(l.handle)
		l.send("c")
		l.takeBack()
		if !slices.Equal(l.handled, []string{"c"}) {
			t.Errorf("the reader has handled %q, want c", l.handled)
		}
	})
}

// TestReaderPassesManyEventsOn: reading and applying many events run in parallel.
func TestReaderPassesManyEventsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLent(t)
		l.lend(l.handle)
		l.send(slices.Repeat([]string{"a"}, directEvents)...)
		l.takeBack()
		if len(l.handled) > 0 || !l.hasBatch() {
			t.Errorf("the reader has handled %q; a batch waits: %v", l.handled, l.hasBatch())
		}
	})
}

// TestTakeBackWaits: the consumer and the reader never work at the same time.
func TestTakeBackWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLent(t)
		goOn, taken := make(chan struct{}), false
		l.before = func() { <-goOn }
		l.lend(l.handle)
		l.send("a")
		go func() {
			l.takeBack()
			taken = true
		}()
		synctest.Wait()
		if taken {
			t.Error("the consumer goes on while the reader handles a batch")
		}
		close(goOn)
		synctest.Wait()
		if !taken || !slices.Equal(l.handled, []string{"a"}) {
			t.Errorf("taken back: %v, handled %q", taken, l.handled)
		}
	})
}

func TestReaderEndsAfterAFailure(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tt := range []struct {
		reason string
		before func()
		fail   error
		want   func(error) bool
	}{
		{"an error", nil, boom, func(err error) bool { return err == boom }},
		{"a panic", func() { panic(boom) }, nil, func(err error) bool {
			p, ok := err.(*protect.Panic)
			return ok && p.Value == boom
		}},
		{"the end of the goroutine", runtime.Goexit, nil, func(err error) bool { return err == errLeft }},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLent(t)
				l.before, l.fail = tt.before, tt.fail
				l.lend(l.handle)
				l.send("a")
				l.takeBack()
				if hasEvents := l.receive(<-l.batches()); hasEvents {
					t.Error("the failed batch comes again")
				}
				if _, err := l.buffered(); !tt.want(err) {
					t.Errorf("the stream ends with %v", err)
				}
				<-l.done // the reader has ended
			})
		})
	}
}

// TestReaderReleasesMemory: after a burst, the reader holds small buffers again.
func TestReaderReleasesMemory(t *testing.T) {
	t.Parallel()
	r := newBodyReader()
	b := &batch{data: make([]byte, largeBuffer), events: make([]event, batchEvents), n: 3}
	r.reuse(b)
	if b.n != 0 || len(b.data) > 4*smallBuffer || len(b.events) > smallEvents {
		t.Errorf("%d bytes and %d events", len(b.data), len(b.events))
	}
	b = &batch{data: make([]byte, largeBuffer), from: 7, to: 9, n: 1}
	if r.reuse(b); b.from != 7 || b.to != 9 || len(b.data) != largeBuffer {
		t.Errorf("bytes from %d to %d of %d, want those that are not decoded", b.from, b.to, len(b.data))
	}
}

// TestReaderReleasesTheBuffersOfInitialEvents: once the initial events have arrived, a watch that receives nothing more
// holds small buffers only.
func TestReaderReleasesTheBuffersOfInitialEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLent(t)
		largest := 0
		consume := func() {
			for synctest.Wait(); l.hasBatch(); synctest.Wait() {
				b := <-l.batches()
				largest = max(largest, len(b.data))
				l.receive(b)
				l.names()
			}
		}
		go func() {
			var frames strings.Builder
			for i := range 20_000 {
				frames.WriteString(frameOf("ADDED", item(fmt.Sprint("o", i), fmt.Sprint(i+1))))
			}
			frames.WriteString(frameOf("BOOKMARK", `{"metadata":{"resourceVersion":"30000","annotations":{"`+initialEventsEnd+
				`":"true"}}}`))
			_, _ = io.WriteString(l.server, frames.String())
		}()
		consume()
		if largest < largeBuffer {
			t.Fatalf("the largest buffer had %d bytes, want %d", largest, largeBuffer)
		}
		if n := len(l.reader.free); n != batchCount-1 {
			t.Fatalf("%d batches are free, want all but the one of the reader", n)
		}
		largest = 0
		for range batchCount - 1 {
			b := <-l.reader.free
			largest = max(largest, len(b.data))
			l.reader.free <- b
		}
		go func() { _, _ = io.WriteString(l.server, frameOf("MODIFIED", item("after", "40000"))) }()
		consume()
		if largest > 4*smallBuffer {
			t.Errorf("a buffer has %d bytes after the initial events, want at most %d", largest, 4*smallBuffer)
		}
	})
}
