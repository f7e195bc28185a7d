package controller

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// slotWorker is a sharedWorker that reports its first slots, and ends with an error of the test.
type slotWorker struct {
	first  sync.Once
	gained chan struct{}
	fail   chan error

	mu   sync.Mutex
	held shard.Set
}

func (w *slotWorker) Gain(_ context.Context, slots shard.Set) error {
	w.mu.Lock()
	w.held = w.held.Union(slots)
	w.mu.Unlock()
	w.first.Do(func() { close(w.gained) })
	return nil
}

func (w *slotWorker) Lose(_ context.Context, slots shard.Set, quiet func(shard.Set)) {
	w.mu.Lock()
	w.held = w.held.Minus(slots)
	w.mu.Unlock()
	if quiet != nil {
		quiet(slots)
	}
}

func (w *slotWorker) Run(ctx context.Context) error {
	select {
	case err := <-w.fail:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestSharingRun: the membership ends with its worker, and with the context. It gives all slots back.
func TestSharingRun(t *testing.T) {
	t.Parallel()
	errWork := errors.New("cannot work")
	for _, tc := range []struct {
		reason string
		end    func(w *slotWorker, stop context.CancelFunc)
		want   error
	}{
		{
			"a worker that fails ends the membership",
			func(w *slotWorker, _ context.CancelFunc) { w.fail <- errWork }, errWork,
		},
		{"a stop is no error", func(_ *slotWorker, stop context.CancelFunc) { stop() }, nil},
	} {
		server := testbed.Server(t, apiserver.Options{})
		s, err := newSharing(server.Config(), sharingOptions{group: "replicas", slots: 2}, group.Options{
			Namespace: "default", Leader: leaseName, Drain: time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		layout := s.group.Layout()
		w := &slotWorker{gained: make(chan struct{}), fail: make(chan error, 1), held: layout.Set()}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx, w, slog.New(slog.DiscardHandler)) }()
		<-w.gained
		tc.end(w, stop)
		if err := <-ended; !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if !w.held.IsEmpty() || !s.slots.Held().IsEmpty() {
			t.Errorf("%s: %v is still held", tc.reason, w.held)
		}
		stop()
		server.Close()
	}
}
