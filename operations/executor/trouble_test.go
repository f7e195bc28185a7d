package executor

import "testing"

// TestTroubles: the first failure of an operation since its last success is kept, and other operations do not change
// it.
func TestTroubles(t *testing.T) {
	t.Parallel()
	var all troubles
	var a, b news
	if all.get(&a) != nil {
		t.Error("an operation without failures has trouble")
	}
	all.conflicted(&a, errOutdated, epoch)
	all.conflicted(&a, errOutdated, epoch.Add(1))
	all.failed(&a, errGone, 3, epoch.Add(2), epoch.Add(9))
	all.failed(&b, errGone, 1, epoch.Add(3), epoch.Add(4))
	want := trouble{since: epoch, until: epoch.Add(9), err: errGone, tries: 3, conflicts: 2, conflict: errOutdated}
	got := all.get(&a)
	if *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	got.tries = 0 // a copy
	if all.remove(&b); all.get(&b) != nil || *all.get(&a) != want {
		t.Error("the removal of one changes the other")
	}
}
