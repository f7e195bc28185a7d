package group

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// TestSlowServer checks that no slot is without a holder while each answer takes 5 s, or up to 5 s. The parts of the
// time before and after the server carries a request out are random.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	seed.Play(t, 8, func(t *testing.T, s uint64) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.reason = t.Name()
			defer w.close()
			one, two, three := w.three(Options{})
			rnd := seed.Rand(s, "answers")
			upTo := rnd.IntN(2) == 0
			for end := time.Now().Add(5 * time.Minute); time.Now().Before(end) && !t.Failed(); {
				for _, p := range []*process{one, two, three} {
					p.set(func() {
						if p.faults.answer = 5 * time.Second; upTo {
							p.faults.answer = time.Duration(1 + rnd.Int64N(int64(5*time.Second)))
						}
					})
				}
				testbed.Settle(100 * time.Millisecond)
				w.within(0, 8, "an answer of up to 5 s")
			}
			four := w.start("four", seed.Rand(s, "four"), Options{})
			four.set(func() { four.faults.answer = 5 * time.Second })
			for end := time.Now().Add(time.Minute); time.Now().Before(end) && four.g.Held().IsEmpty(); {
				testbed.Settle(100 * time.Millisecond)
				w.holders()
			}
			if four.g.Held().IsEmpty() {
				t.Errorf("A member whose answers take 5 s does not join: %+v.", four.g.Status())
			}
		})
	})
}

// TestFormerRelease checks that a member has stopped 9 s after its last renewal arrived. Members of the former release
// respect its Lease for so long only, although it lasts 15 s.
func TestFormerRelease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{})
		w.play(5 * time.Second)
		for _, l := range w.leases() {
			if seconds, _, _ := unstructured.NestedInt64(l.Object, "spec", "leaseDurationSeconds"); l.GetName() != "gateways" &&
				seconds != 15 {
				t.Errorf("The Lease lasts %d s.", seconds)
			}
		}
		version := func() (all string) {
			for _, l := range w.leases() {
				all += l.GetName() + l.GetResourceVersion() + " "
			}
			return all
		}
		for before := version(); version() == before; {
			testbed.Settle(10 * time.Millisecond)
		}
		one.set(func() { one.faults.cut = true }) // the last renewal has just been answered
		testbed.Settle(7 * time.Second)
		if !one.works(0) {
			t.Error("It has stopped after 7 s.")
		}
		testbed.Settle(1950 * time.Millisecond)
		if one.works(0) {
			t.Error("It works when a member of the former release takes its slots.")
		}
	})
}

// TestDurations checks that members of the times of the former release and of the present ones share slots, and that a
// crash of either kind is followed within 20 s. An edit by hand of the duration changes nothing.
func TestDurations(t *testing.T) {
	former := Options{Duration: 9 * time.Second, Renew: 6 * time.Second, period: 1500 * time.Millisecond}
	for _, tc := range []struct {
		name           string
		crashes, stays Options
	}{{"former", former, Options{}}, {"present", Options{}, former}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				one, two := w.start("one", random(), tc.crashes), w.start("two", random(), tc.stays)
				w.play(5 * time.Second)
				w.within(0, 8, "the start")
				if one.g.Held().Len() != 4 {
					t.Errorf("one holds %s", one.g.Held())
				}
				for _, l := range w.leases() {
					if l.GetName() == "gateways" {
						continue
					}
					if _, err := w.server.Change(leaseResource, "a", l.GetName(), func(u *unstructured.Unstructured) {
						if err := unstructured.SetNestedField(u.Object, int64(1), "spec", "leaseDurationSeconds"); err != nil {
							t.Error(err)
						}
					}); err != nil {
						t.Error(err)
					}
				}
				one.set(func() { one.faults.cut = true }) // it works until its bound
				w.play(4 * time.Second)
				if held := one.g.Held(); held.Len() != 4 {
					t.Errorf("After 4 s one holds %s.", held)
				}
				w.play(16 * time.Second)
				w.within(0, 8, "a crash")
				if !two.g.Held().IsAll() {
					t.Errorf("two holds %s", two.g.Held())
				}
			})
		})
	}
}
