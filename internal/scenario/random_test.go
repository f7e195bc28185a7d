package scenario_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/scenario"
	"github.com/fairlead-io/fairlead/internal/seed"
)

const (
	fixed = 12  // seeds that every run plays
	drawn = 300 // additional seeds, see seed.Play
	steps = 60
	// soakReport is the interval of progress reports in a soak.
	soakReport = 10 * time.Second
)

// TestRandom plays random schedules against source and store. FAIRLEAD_SEED=n replays one of them with a log.
// FAIRLEAD_SOAK=1h plays new ones for that time.
func TestRandom(t *testing.T) {
	t.Parallel()
	if s := os.Getenv("FAIRLEAD_SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		first := uint64(begin.UnixNano())
		reported := begin
		t.Logf("schedules from FAIRLEAD_SEED=%d on, for %s", first, d)
		next := first
		for ; time.Since(begin) < d && !t.Failed(); next++ {
			play(t, next, nil)
			if time.Since(reported) >= soakReport {
				reported = time.Now()
				t.Logf("%s of %s: %d schedules, the last one FAIRLEAD_SEED=%d", time.Since(begin).Round(time.Second), d,
					next-first+1, next)
			}
		}
		t.Logf("%d schedules in %s", next-first, time.Since(begin).Round(time.Second))
		return
	}
	var logger *slog.Logger
	if os.Getenv("FAIRLEAD_SEED") != "" {
		logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	} else {
		for s := range uint64(fixed) {
			t.Run(fmt.Sprint("seed ", s), func(t *testing.T) {
				t.Parallel()
				play(t, s, nil)
			})
		}
	}
	seed.Play(t, drawn, func(t *testing.T, s uint64) {
		t.Parallel()
		play(t, s, logger)
	})
}

// play plays one seed. A failure contains all that is needed to replay it. A logger receives what happened.
func play(t *testing.T, seed uint64, logger *slog.Logger) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		res, log := scenario.Random(scenario.Fairlead{}, seed, steps, logger)
		for _, line := range log {
			if logger != nil {
				t.Log(line)
			}
		}
		for _, p := range res.Problems {
			t.Errorf("FAIRLEAD_SEED=%d: %s", seed, p)
		}
	})
}
