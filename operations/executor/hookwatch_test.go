package executor

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
)

// TestDrainCheck: one Webhook with a longer requestTimeout than the drain is reported, once.
func TestDrainCheck(t *testing.T) {
	t.Parallel()
	hooks := map[string]time.Duration{"quick": 10 * time.Second, "slow": time.Minute, "slower": time.Hour}
	times := func(hook store.Key) (compiled.Times, bool) {
		try, ok := hooks[hook.Name]
		return compiled.Times{Try: try}, ok
	}
	for name, tc := range map[string]struct {
		drain time.Duration
		want  string // in the log; "": nothing
	}{
		"Shorter":  {30 * time.Second, "webhook=a/slow requestTimeout=1m0s drain=30s"},
		"Equal":    {time.Hour, ""},
		"NoBounds": {0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			c := &drainCheck{drain: tc.drain, times: times, log: slog.New(slog.NewTextHandler(&log, nil))}
			for _, hook := range []string{"absent", "quick", "slow", "slower", "slow"} {
				c.see(t.Context(), store.Key{Namespace: "a", Name: hook})
			}
			lines := strings.Count(log.String(), "\n")
			if !strings.Contains(log.String(), tc.want) || lines != min(1, len(tc.want)) {
				t.Errorf("got %q, want a line with %q", log.String(), tc.want)
			}
		})
	}
}
