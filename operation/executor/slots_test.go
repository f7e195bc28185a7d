package executor

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestSlots asks in random order for slots of random tenants and checks after every step that no more are out than there are, that a tenant
// which holds none gets one while one is free, and that at the end nobody waits and all are free again.
func TestSlots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 6).Draw(t, "slots")
		s := newSlots(total)
		type request struct {
			tenant string
			key    slotKey
		}
		var holding, waiting []request
		woken := map[slotKey]bool{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "action") {
			case 0, 1:
				r := request{fmt.Sprint("t", rapid.IntRange(0, 2).Draw(t, "tenant")), slotKey{target: target{id: fmt.Sprint(i)}}}
				free, held := s.free, s.held[r.tenant]
				if s.acquire(r.tenant, r.key, func() { woken[r.key] = true }) {
					holding = append(holding, r)
				} else {
					if free > 0 && held == 0 && len(s.waiting[r.tenant]) == 1 {
						t.Fatalf("tenant %s holds none, %d are free, and it has to wait", r.tenant, free)
					}
					waiting = append(waiting, r)
				}
			case 2:
				if len(holding) > 0 {
					s.release(holding[0].tenant)
					holding = holding[1:]
				}
			case 3:
				if len(waiting) > 0 {
					r := waiting[0]
					waiting = waiting[1:]
					if s.withdraw(r.tenant, r.key) {
						s.release(r.tenant)
					}
				}
			}
			if s.free < 0 || s.free > total {
				t.Fatalf("%d of %d are free", s.free, total)
			}
		}
		for len(holding)+len(waiting) > 0 {
			var still []request
			for _, r := range waiting {
				if woken[r.key] {
					if !s.acquire(r.tenant, r.key, nil) {
						t.Fatal("who was woken gets its slot")
					}
					holding = append(holding, r)
				} else {
					still = append(still, r)
				}
			}
			waiting = still
			if len(holding) == 0 {
				t.Fatalf("%d wait although nobody holds any", len(waiting))
			}
			s.release(holding[0].tenant)
			holding = holding[1:]
		}
		if s.free != total || s.depth() != 0 || len(s.held) != 0 || len(s.granted) != 0 {
			t.Fatalf("left over: %+v", s)
		}
	})
}
