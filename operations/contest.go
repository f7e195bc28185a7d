package operations

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// patience is how long a request contends with others who write the same Operation. An executor writes one several
// times a second while it runs, and so may those who label or annotate it: whoever only tries often loses to them by
// chance.
const patience = 30 * time.Second

var betweenRounds = backoff.Policy{Base: 10 * time.Millisecond, Cap: 500 * time.Millisecond, Factor: 2}

// contest is one request that others may be faster than.
type contest struct {
	began  time.Time
	rounds int
	lost   error // how the last round ended
}

// next tells whether there is one more round, and waits until it begins.
func (c *contest) next(ctx context.Context) bool {
	if c.rounds++; c.rounds == 1 {
		c.began = time.Now()
		return true
	}
	wait := betweenRounds.Delay(c.rounds-2, rand.Float64)
	if time.Since(c.began)+wait > patience {
		return false
	}
	if err := backoff.Pause(ctx, wait); err != nil {
		c.lost = fmt.Errorf("%w; %w", c.lost, err)
		return false
	}
	return true
}

// err says why there is no further round.
func (c *contest) err() error {
	return fmt.Errorf("gave up after %d lost races in %s: %w", c.rounds-1, time.Since(c.began).Round(time.Millisecond),
		c.lost)
}
