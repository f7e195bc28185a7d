package executor

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestWebhookChanges: the first change of a namespace wakes its operations at once. Further changes become one wake-up
// after a pause that grows with the number of woken operations. Other namespaces do not wait for it.
func TestWebhookChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newWebhookChanges()
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		woken := map[string][]time.Duration{}
		var changed nameSet
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.run(ctx, func(namespace string, names nameSet) int {
				woken[namespace] = append(woken[namespace], time.Since(begun))
				changed = names
				return 500
			})
		}()
		c.add("busy", "a")
		synctest.Wait()
		for _, name := range []string{"b", "c"} {
			c.add("busy", name)
			synctest.Wait()
		}
		c.add("other", "a")
		time.Sleep(time.Minute)
		cancel()
		<-ended
		pause := wakePause + 500*wakeEach
		if got, want := woken["busy"], []time.Duration{0, pause}; !slices.Equal(got, want) {
			t.Errorf("woken at %v, want %v", got, want)
		}
		if got := woken["other"]; !slices.Equal(got, []time.Duration{0}) {
			t.Errorf("the other namespace is woken at %v", got)
		}
		op := &v1alpha1.Operation{}
		op.Spec.WebhookIDs, op.Spec.NotifyWebhookID = []string{"x", "b"}, "y"
		if changed != c.set("b")|c.set("c") || c.of(op)&changed == 0 {
			t.Errorf("the second wake-up is for %b", changed)
		}
	})
}
