package worker

import (
	"strings"
	"testing"
	"time"
)

// TestPauses: idle seconds without progress, or much computing, end a schedule. A process that gets little of a busy
// machine is neither.
func TestPauses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		used     time.Duration           // processor time of each second
		progress func(second int) uint64 // so far
		playing  func(second int) bool
		seconds  int // after which it ends; 0: it does not within five minutes
		says     string
	}{
		"Idle":     {seconds: 10, says: "made no progress for 10s"},
		"Computes": {used: 2 * time.Second, seconds: 30, says: "computed for 1m0s"},
		"Starved":  {used: 50 * time.Millisecond},
		"Progress": {progress: func(s int) uint64 { return uint64(s / 9) }},
		"Stops":    {progress: func(s int) uint64 { return uint64(min(s, 20)) }, seconds: 30, says: "made no progress"},
		"Between":  {playing: func(int) bool { return false }},
		"Resumes":  {playing: func(s int) bool { return s%10 > 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p pauses
			why, second := "", 0
			for why == "" && second < 300 {
				second++
				progress, playing := uint64(0), true
				if tc.progress != nil {
					progress = tc.progress(second)
				}
				if tc.playing != nil {
					playing = tc.playing(second)
				}
				why = p.second(progress, playing, time.Duration(second)*tc.used)
			}
			if tc.seconds == 0 && why != "" || tc.seconds > 0 && second != tc.seconds || !strings.Contains(why, tc.says) {
				t.Errorf("after %d seconds: %q, want %q after %d", second, why, tc.says, tc.seconds)
			}
		})
	}
}
