package watchtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
)

// Recorder is a subscriber that records its events and the cached state at the time of each. Its methods are safe for
// concurrent use. Close it before the store.
type Recorder struct {
	cursor *store.Cursor
	store  *store.Store
	handle func(store.Event)
	cancel context.CancelFunc
	done   chan struct{}

	mu        sync.Mutex
	recording Recording
	keys      map[string]struct{} // all keys seen so far
	changed   chan struct{}       // closed and replaced with each event
	gate      chan struct{}       // not nil while the subscriber is blocked: closed by Unblock
}

// RecorderOptions configure a Recorder. The zero value records all events.
type RecorderOptions struct {
	Name      string
	Subscribe store.SubscribeOptions
	// Handle, if not nil, is called with each event, in order and from one goroutine. It may close the Recorder.
	Handle func(store.Event)
}

// Record subscribes to a store and records its events until Close.
func Record(s *store.Store, o RecorderOptions) *Recorder {
	o.Subscribe.Name = o.Name
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recorder{
		store: s, handle: o.Handle, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}),
		keys: map[string]struct{}{}, recording: Recording{
			Name: o.Name, Filtered: o.Subscribe.Filter != nil, Sharded: s.Options().Shard != "",
		},
		cursor: s.Subscribe(o.Subscribe),
	}
	go func() {
		defer close(r.done)
		r.run(ctx)
	}()
	return r
}

func (r *Recorder) run(ctx context.Context) {
	for {
		e, err := r.cursor.Next(ctx)
		if err != nil {
			return
		}
		if !r.pass(ctx) {
			return
		}
		r.note(e)
		if r.handle != nil {
			r.handle(e)
		}
	}
}

// pass waits while the subscriber is blocked. It reports false if ctx ends.
func (r *Recorder) pass(ctx context.Context) bool {
	for {
		r.mu.Lock()
		gate := r.gate
		r.mu.Unlock()
		if gate == nil {
			return true
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *Recorder) note(e store.Event) {
	n := eventOf(e)
	n.At, n.Looked = time.Now(), true
	if rec, ok := r.store.Get(e.Key); ok {
		n.Cached = StateOf(rec)
	}
	r.look()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recording.Events = append(r.recording.Events, n)
	if n.Key != "" {
		r.keys[n.Key] = struct{}{}
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// look measures the number of pending changes, for W10.
func (r *Recorder) look() {
	waiting, keys := r.cursor.Lag(), r.store.Len()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recording.MaxWaiting = max(r.recording.MaxWaiting, waiting)
	r.recording.Keys = max(r.recording.Keys, keys, len(r.keys))
}

// Block blocks the subscriber before its next event, until Unblock.
func (r *Recorder) Block() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate == nil {
		r.gate = make(chan struct{})
	}
}

// Unblock ends Block.
func (r *Recorder) Unblock() {
	r.look()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate != nil {
		close(r.gate)
		r.gate = nil
	}
}

// Recording returns a copy of the recording so far.
func (r *Recorder) Recording() Recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.recording
	out.Events = slices.Clone(out.Events)
	return out
}

// Wait waits until done accepts the recording. It calls done after each event. The error, when ctx ends, shows the
// last events.
func (r *Recorder) Wait(ctx context.Context, done func(Recording) bool) error {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		now := r.Recording()
		if done(now) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the events of %s, the last of %d are %v: %w", now.Name, len(now.Events),
				now.Events[max(0, len(now.Events)-5):], context.Cause(ctx))
		}
	}
}

// Close ends the subscription. It waits for the recorder's goroutine, unless that goroutine calls it.
func (r *Recorder) Close() { r.cursor.Close(); r.cancel() }

// Done returns a channel that is closed when the recorder has stopped after Close.
func (r *Recorder) Done() <-chan struct{} { return r.done }
