package executor

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/store"
)

// TestLines compares the lines with a map from each operation to its predecessor.
func TestLines(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l lines
		waiting := make([]news, 6)
		ahead := make(map[int]store.Key)
		key := func() store.Key { return store.Key{Name: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "key"))} }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, len(waiting)-1).Draw(t, "operation")
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				ahead[i] = key()
				l.join(&waiting[i], ahead[i])
			case 1:
				delete(ahead, i)
				l.leave(&waiting[i])
			case 2:
				changed := key()
				l.wake(changed)
				for i := range waiting {
					behind, waits := ahead[i]
					if woken := waiting[i].take(); woken != (waits && behind == changed) {
						t.Fatalf("operation %d behind %v: woken by %v: %t", i, behind, changed, woken)
					}
				}
			}
			for i := range waiting {
				want, waits := ahead[i]
				if got, ok := l.behind(&waiting[i]); got != want || ok != waits {
					t.Fatalf("operation %d is behind %v, %t, want %v, %t", i, got, ok, want, waits)
				}
			}
			if l.count() != len(ahead) {
				t.Fatalf("%d wait, want %d", l.count(), len(ahead))
			}
		}
		for i := range waiting {
			l.leave(&waiting[i])
		}
		if len(l.waiting)+len(l.ahead) > 0 {
			t.Fatalf("after all have left: %v", l.waiting)
		}
	})
}
