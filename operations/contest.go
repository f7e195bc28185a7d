package operations

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// patience bounds how long a request competes with other writers of the same Operation. A running executor writes it
// several times a second, and other clients may label or annotate it. A fixed number of attempts could therefore fail
// by chance.
const patience = 30 * time.Second

var betweenRounds = backoff.Policy{Base: 10 * time.Millisecond, Cap: 500 * time.Millisecond, Factor: 2}

// contest is a request that retries after optimistic-lock conflicts with other writers.
type contest struct {
	began  time.Time
	rounds int
	lost   error // the error of the last round
}

// next reports whether another round may start, and waits for its backoff.
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

// err returns the error after the last round.
func (c *contest) err() error {
	return fmt.Errorf("gave up after %d lost races in %s: %w", c.rounds-1, time.Since(c.began).Round(time.Millisecond),
		c.lost)
}
