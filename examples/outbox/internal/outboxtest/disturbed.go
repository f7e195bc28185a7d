package outboxtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/operations/outbox"
)

// testDisturbed loses statements, commits and deliveries before or after they take effect, and runs two relays at a
// time that stop at random points. Each committed entry must become one operation, in commit order for each key. A
// rolled back entry must not become an operation.
func testDisturbed(t *testing.T, b *bench) {
	seed.Play(t, 1, func(t *testing.T, seed uint64) {
		b := newBench(t, b.Database)
		lossy := &lossyDriver{to: b.db.Driver(), dsn: b.DSN, dice: dice{rnd: rand.New(rand.NewPCG(seed, 0))}}
		db := sql.OpenDB(lossy)
		t.Cleanup(func() { _ = db.Close() })
		box, err := outbox.Open(db, b.Dialect, outbox.Options{Table: b.table, Now: b.clock.now})
		if err != nil {
			t.Fatal(err)
		}
		api := &operations{begun: map[string][]string{}}
		api.ctx, api.close = context.WithCancel(t.Context())
		var work sync.WaitGroup
		for range 2 {
			work.Go(func() {
				for !api.closed() {
					// A number of statements ends it, not a time: on a busy machine nothing may happen in that time.
					ctx, stop := context.WithCancel(api.ctx)
					lossy.after(5+lossy.roll(60), stop)
					r := b.relay(func(_ context.Context, e outbox.Entry) error { return api.schedule(lossy, e) })
					r.Outbox = box
					if err := r.Run(ctx); err != nil {
						t.Error(err)
					}
					stop()
					b.clock.pass(30 * time.Second) // lets the leases of lost relays expire
				}
			})
		}
		const keys, perKey = 4, 15
		want := map[string][]string{}
		for k := range keys {
			key := fmt.Sprint("key", k)
			for i := range perKey {
				id := fmt.Sprint(key, "-", i)
				if i%5 == 4 { // roll back
					if err := put(t, db, box, entry(id, key), false); err == nil {
						continue
					}
				}
				for put(t, db, box, entry(id, key), true) != nil { // maybe only the answer was lost: retry
				}
				want[key] = append(want[key], id)
			}
		}
		until(t, fmt.Sprintf("FAIRLEAD_SEED=%d: everything is delivered", seed),
			func() bool { return b.stats(t).Pending == 0 })
		api.close()
		work.Wait()
		if diff := cmp.Diff(want, api.begun); diff != "" {
			t.Errorf("FAIRLEAD_SEED=%d: committed (-) and begun (+):\n%s", seed, diff)
		}
		if n := b.stats(t).Rejected; n != 0 {
			t.Errorf("FAIRLEAD_SEED=%d: %d rejected", seed, n)
		}
	})
}

// put enqueues one entry, and commits or rolls back the transaction.
func put(t *testing.T, db *sql.DB, box *outbox.Outbox, e outbox.Entry, commit bool) error {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	if err := box.Enqueue(t.Context(), tx, e); err != nil {
		if errors.Is(err, outbox.ErrConflict) {
			t.Error(err)
		}
		return errors.Join(err, tx.Rollback())
	}
	if !commit {
		return tx.Rollback()
	}
	return tx.Commit()
}

// operations is the target of deliveries. Like a scheduler, it accepts each id once.
type operations struct {
	ctx   context.Context //nolint:containedctx // until close
	close context.CancelFunc
	mu    sync.Mutex
	begun map[string][]string // ids by key
}

func (o *operations) schedule(lossy *lossyDriver, e outbox.Entry) error {
	if lossy.roll(6) == 0 {
		return errLost
	}
	o.mu.Lock()
	if !slices.Contains(o.begun[e.Key], e.ID) {
		o.begun[e.Key] = append(o.begun[e.Key], e.ID)
	}
	o.mu.Unlock()
	if lossy.roll(6) == 0 {
		return errLost
	}
	return nil
}

func (o *operations) closed() bool { return o.ctx.Err() != nil }

var errLost = errors.New("lost")

type dice struct {
	mu     sync.Mutex
	rnd    *rand.Rand
	counts []*count
}

// count is a function to call after a number of rolls.
type count struct {
	rolls int
	fn    func()
}

func (d *dice) roll(sides int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts = slices.DeleteFunc(d.counts, func(c *count) bool {
		if c.rolls--; c.rolls <= 0 {
			c.fn()
		}
		return c.rolls <= 0
	})
	return d.rnd.IntN(sides)
}

// after calls fn after a number of rolls, which statements, commits and deliveries make. fn must not roll.
func (d *dice) after(rolls int, fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts = append(d.counts, &count{rolls, fn})
}

// lossyDriver connects to a database over an unreliable connection.
type lossyDriver struct {
	dice
	to  driver.Driver
	dsn string
}

func (l *lossyDriver) Connect(context.Context) (driver.Conn, error) {
	conn, err := l.to.Open(l.dsn)
	if err != nil {
		return nil, err
	}
	return &lossyConn{conn, l}, nil
}

func (l *lossyDriver) Driver() driver.Driver { return l.to }

type lossyConn struct {
	driver.Conn
	line *lossyDriver
}

func (c *lossyConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return &lossyTx{tx, c.line}, nil
}

func (c *lossyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.line.roll(12) == 0 {
		return nil, errLost
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *lossyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.line.roll(12) == 0 {
		return nil, errLost
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

type lossyTx struct {
	driver.Tx
	line *lossyDriver
}

func (tx *lossyTx) Commit() error {
	switch tx.line.roll(9) {
	case 0:
		return errors.Join(errLost, tx.Rollback())
	case 1:
		return errors.Join(errLost, tx.Tx.Commit())
	}
	return tx.Tx.Commit()
}
