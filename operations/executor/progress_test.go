package executor

import (
	"testing"

	"pgregory.net/rapid"
)

// TestProgress: after random updates and reads, the counts equal those of a scan.
func TestProgress(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p progress
		var all []int64 // the seconds at which the running ones are near their timeout
		now := int64(100)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				near := rapid.Int64Range(90, 130).Draw(t, "near")
				p.enter(near)
				all = append(all, near)
			case 1:
				if len(all) > 0 {
					i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					p.leave(all[i])
					all = append(all[:i], all[i+1:]...)
				}
			case 2:
				now += rapid.Int64Range(0, 5).Draw(t, "passes")
				want := census{running: len(all)}
				for _, near := range all {
					if near <= now {
						want.near++
					}
				}
				if got := p.count(now); got != want {
					t.Fatalf("at %d: %+v, want %+v", now, got, want)
				}
			}
		}
		for _, near := range all {
			p.leave(near)
		}
		if got := p.count(now); got != (census{}) || len(p.later) > 0 && now > 130 {
			t.Fatalf("after all have gone: %+v", got)
		}
	})
}
