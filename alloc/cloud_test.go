package alloc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// cloud is a provider that obeys idempotency keys and remembers them.
type cloud struct {
	w           *world
	fails, slow atomic.Int32
	mu          sync.Mutex
	during      []func() // run during calls, one in each
	n           int
	live        map[string]string // by key
	gone        map[string]bool
	given       map[string]time.Time // by value: when it was given back
}

var errGone = errors.New("the key was released")

func (c *cloud) create(_ context.Context, key string) (string, error) {
	c.wait()
	c.mu.Lock()
	if c.gone[key] {
		c.mu.Unlock()
		return "", errGone
	}
	if c.live[key] == "" {
		c.n++
		c.live[key] = fmt.Sprintf("10.0.0.%d", c.n)
	}
	value := c.live[key]
	c.mu.Unlock()
	c.wait()
	if c.fails.Load() > 0 {
		c.fails.Add(-1)
		return "", errors.New("no answer")
	}
	return value, nil
}

// interrupt runs fn during the next call.
func (c *cloud) interrupt(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.during = append(c.during, fn)
}

// wait sleeps for the provider's latency in one direction.
func (c *cloud) wait() {
	c.mu.Lock()
	var happens func()
	if len(c.during) > 0 {
		happens, c.during = c.during[0], c.during[1:]
	}
	c.mu.Unlock()
	if happens != nil {
		happens()
	}
	d := time.Duration(c.w.pace) * time.Millisecond
	if c.slow.Load() > 0 {
		c.slow.Add(-1)
		d += 700 * time.Millisecond
	}
	if d > 0 {
		<-time.After(d)
	}
}

func (c *cloud) release(_ context.Context, key, value string) error {
	c.wait()
	c.giveBack("released", key, value)
	c.wait()
	return nil
}

func (c *cloud) discard(_ context.Context, key, value string) error {
	c.wait()
	c.giveBack("discarded", key, value)
	return nil
}

func (c *cloud) giveBack(how, key, value string) {
	for _, name := range []string{"one", "two"} {
		g := testbed.Stored(c.w.server, client.Key{Namespace: "a", Name: name})
		if g == nil {
			continue
		}
		for slot, s := range g.Status.Allocated {
			if s.Key == key && s.Value != "" && !s.Releasing {
				c.w.problem("%s was %s while slot %s of %s holds it", s.Value, how, slot, name)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.live[key]
	if value != "" && had != "" && had != value {
		c.w.problem("key %s of %s was %s with value %s", key, had, how, value)
	}
	if _, known := c.given[had]; had != "" && !known {
		c.given[had] = time.Now()
	}
	delete(c.live, key)
	c.gone[key] = true
}

// gaveBack reports whether a value was given back before a time.
func (c *cloud) gaveBack(value string, before time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.given[value]
	return ok && at.Before(before)
}
