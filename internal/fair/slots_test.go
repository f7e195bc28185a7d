package fair

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestSlots acquires slots of random tenants in random order. No more slots are out than exist. A namespace without a
// slot gets a free one. So does a tenant of a namespace that may have one more. At the end nothing waits and all slots
// are free.
func TestSlots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 9).Draw(t, "slots")
		s := NewSlots(total)
		type request struct {
			who Party
			key any
		}
		var holding, waiting []request
		woken := map[any]bool{}
		waits := func(who Party) (n int) {
			for _, r := range waiting {
				if r.who == who {
					n++
				}
			}
			return n
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "action") {
			case 0, 1:
				who := Party{
					fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "namespace")),
					fmt.Sprint("t", rapid.IntRange(0, 2).Draw(t, "tenant")),
				}
				r := request{who, fmt.Sprint(i)}
				free, held, own := s.free(), s.held.Of(who.Group), s.byMember.Of(who)
				if s.Acquire(who, r.key, func() { woken[r.key] = true }) {
					holding = append(holding, r)
				} else {
					if free > held && own == 0 && waits(who) == 0 {
						t.Fatalf("%v has no slot, its namespace %d, %d are free, and it has to wait", who, held, free)
					}
					waiting = append(waiting, r)
				}
			case 2:
				if len(holding) > 0 {
					s.Release(holding[0].who)
					holding = holding[1:]
				}
			case 3:
				if len(waiting) > 0 {
					r := waiting[0]
					waiting = waiting[1:]
					if s.Withdraw(r.who, r.key) {
						s.Release(r.who)
					}
				}
			}
			if s.free() < 0 || s.free() > total {
				t.Fatalf("%d of %d are free", s.free(), total)
			}
		}
		for len(holding)+len(waiting) > 0 {
			var still []request
			for _, r := range waiting {
				if woken[r.key] {
					if !s.Acquire(r.who, r.key, nil) {
						t.Fatal("a woken tenant gets no slot")
					}
					holding = append(holding, r)
				} else {
					still = append(still, r)
				}
			}
			waiting = still
			if len(holding) == 0 {
				t.Fatalf("%d wait although no slot is held", len(waiting))
			}
			s.Release(holding[0].who)
			holding = holding[1:]
		}
		if u := s.Usage(); s.free() != total || u.Waiting+u.Groups != 0 || len(s.held.byKey)+len(s.byMember.byKey) != 0 ||
			len(s.requests) != 0 {
			t.Fatalf("left over: %+v", s)
		}
	})
}

// TestSlotsByNamespace: the calls of one namespace hang, each of another tenant or all of one.
func TestSlotsByNamespace(t *testing.T) {
	t.Parallel()
	const total = 512
	tests := map[string]struct {
		reason string
		tenant func(i int) string
		want   int
	}{
		"ManyTenants": {"A namespace gets half, however many tenants it makes up.", func(i int) string {
			return fmt.Sprint(i)
		}, total / 2},
		"OneTenant": {
			"One tenant leaves a quarter of that to later tenants.", func(int) string { return "" },
			total / 2 / 4 * 3,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewSlots(total)
			key := func(who string, i int) any { return fmt.Sprint(who, i) }
			got := 0
			for i := range 540 {
				if s.Acquire(Party{"hostile", tc.tenant(i)}, key("hostile", i), func() {}) {
					got++
				}
			}
			if got != tc.want {
				t.Errorf("%s got %d, want %d", tc.reason, got, tc.want)
			}
			if u := s.Usage(); u.Waiting != 540-got || u.Groups != 1 {
				t.Errorf("usage %+v", u)
			}
			for i := range 64 {
				if !s.Acquire(Party{"victim", ""}, key("victim", i), nil) {
					t.Fatalf("another namespace waits for its call %d", i)
				}
			}
			if !s.Acquire(Party{"third", ""}, key("third", 0), nil) {
				t.Error("a third namespace waits for its first call")
			}
		})
	}
}
