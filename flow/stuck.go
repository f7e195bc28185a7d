package flow

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// reportStuck logs that the cancelled fiber holder does not stop, for which f has waited. wg counts the goroutine that
// logs. The caller holds core.mu.
func reportStuck(wg *sync.WaitGroup, log *slog.Logger, f, holder *fiber, waited time.Duration) {
	waiting, stuck, workers := infoOf(f), infoOf(holder), goroutinesOf(holder, nil)
	wg.Go(func() {
		log.Error("predecessor does not stop", "key", stuck.Key, "path", stuck.Path, "epoch", stuck.Epoch,
			"waiting", waiting.Path, "for", waited, "stack", goroutine.Stacks(workers...))
	})
}

// slowest returns the fiber that has run at one step for longest, among those whose workers the group may use. It
// returns nil if no such worker is running. The caller holds core.mu.
func slowest(s *scheduler, g *group) (slowest *fiber) {
	bounded := s.queue.full(g)
	var since int64
	for w := range s.busy() {
		if w.f.state != Running || !bounded && w.away || bounded && w.f.subgroup.group != g {
			continue
		}
		if at := w.f.progress.snapshot().since; slowest == nil || at < since {
			slowest, since = w.f, at
		}
	}
	return slowest
}

// goroutinesOf appends the goroutines that run f or its children to list. The caller holds core.mu.
func goroutinesOf(f *fiber, list []goroutine.ID) []goroutine.ID {
	if id, ok := f.e.sched.goroutine(f); ok {
		list = append(list, id)
	}
	if f.state == Parked && f.why == whyFork {
		for _, c := range f.park.fork.kids {
			if c != nil {
				list = goroutinesOf(c, list)
			}
		}
	}
	return list
}
