package executor

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// TestCatchUpInManyNamespaces: freshness is established for more namespaces than one watch of statuses holds, and for
// one added later.
func TestCatchUpInManyNamespaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := store.New(store.Options{
			Namespaced: true, Probe: func(context.Context) (string, error) { return "1", nil },
		})
		defer st.Close()
		name := func(i int) string { return fmt.Sprint("ns-", i) }
		appear := func(i int) {
			sink := st.Sink(name(i))
			all := sink.Replace()
			all.Commit(source.Commit{Version: "1"})
			sink.Report(source.Status{Phase: source.Watching, Reason: source.ReasonWatching, Synced: true})
		}
		const many = 200
		for i := range many {
			appear(i)
		}
		f := newFreshness(shard.Layout{Slots: 1})
		f.gain(shard.Layout{Slots: 1}.All())
		statuses := st.WatchStatus()
		defer statuses.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.run(ctx, st, statuses.C, func() {}, slog.New(slog.DiscardHandler))
		}()
		synctest.Wait()
		appear(many)
		synctest.Wait()
		for i := range many + 1 {
			if !f.in(name(i)) {
				t.Errorf("%s is not known to be fresh", name(i))
			}
		}
		cancel()
		<-done
	})
}

// TestFreshSlotComesAgain: earlier findings about a slot, or a search under way, say nothing about the slot when it is
// gained again.
func TestFreshSlotComesAgain(t *testing.T) {
	t.Parallel()
	f := newFreshness(shard.Layout{})
	slot := shard.Layout{}.Set(shard.Layout{}.SlotOf("ns", ""))
	f.gain(slot)
	begun := f.begin("")
	if again := f.begin(""); again != nil {
		t.Errorf("two searches run: %v", again)
	}
	if f.report("", begun, true); !f.in("ns") {
		t.Error("the slot is not fresh")
	}
	f.lose(slot)
	f.gain(slot)
	if left := f.report("", begun, true); left || f.in("ns") {
		t.Error("a finding from before the loss counts")
	}
	if f.report("", f.begin(""), true); !f.in("ns") {
		t.Error("the slot is not fresh again")
	}
}
