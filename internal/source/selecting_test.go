package source

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestShardSelector: a server that rejects the selector gets one again after noSelectorFor.
func TestShardSelector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s shardSelector
		some, all := fourSlots.Set(0), fourSlots.All()
		if s.of(&some) == "" || s.of(&all) != "" || s.of(nil) != "" {
			t.Errorf("selectors %q, %q, %q", s.of(&some), s.of(&all), s.of(nil))
		}
		if s.rejected(); s.of(&some) != "" {
			t.Error("a rejected selector is sent again")
		}
		if <-time.After(noSelectorFor); s.of(&some) == "" {
			t.Error("no selector is sent after the time has passed")
		}
	})
}
