package outboxtest

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/operations/outbox"
)

// Environment of the child process of testKilledRelay.
const (
	dsnOfChild     = "OUTBOX_TEST_DSN"
	driverOfChild  = "OUTBOX_TEST_DRIVER"
	dialectOfChild = "OUTBOX_TEST_DIALECT"
	tableOfChild   = "OUTBOX_TEST_TABLE"
)

// IsChild reports whether this process is a child of a test. Then TestMain must exit with the code of Child.
func IsChild() bool { return os.Getenv(dsnOfChild) != "" }

// Child runs a relay that prints each delivery and never completes one. It returns the exit code.
func Child() int {
	db, err := sql.Open(os.Getenv(driverOfChild), os.Getenv(dsnOfChild))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	box, err := outbox.Open(db, outbox.Dialect(os.Getenv(dialectOfChild)), outbox.Options{Table: os.Getenv(tableOfChild)})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	relay := &outbox.Relay{Outbox: box, Deliver: func(ctx context.Context, e outbox.Entry) error {
		fmt.Println("delivering", e.ID)
		<-ctx.Done()
		return ctx.Err()
	}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // in case the test does not kill it
	defer cancel()
	if err := relay.Run(ctx); err != nil {
		fmt.Println(err)
	}
	return 1
}

// testKilledRelay kills a relay during a delivery. Another relay delivers the same id when the lease has expired.
func testKilledRelay(t *testing.T, b *bench) {
	b.put(t, entry("one", "k"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), dsnOfChild+"="+b.DSN, driverOfChild+"="+b.Driver, dialectOfChild+"="+string(b.Dialect),
		tableOfChild+"="+b.table)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "delivering one\n" {
		t.Errorf("the child said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the child was not killed")
	}
	got := make(chan outbox.Entry, 10)
	start(t, b.relay(func(_ context.Context, e outbox.Entry) error { got <- e; return nil }))
	b.put(t, entry("marker", "l"))
	if e := take(t, got); e.ID != "marker" {
		t.Fatalf("delivered %q before its lease ran out", e.ID)
	}
	b.clock.pass(30*time.Second + outbox.LeaseMargin + time.Second)
	if e := take(t, got); e.ID != "one" || e.Attempt != 2 {
		t.Errorf("delivered %+v", e)
	}
}

// lineWriter sends log lines to a channel. It drops lines when the channel is full.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	select {
	case w <- string(p):
	default:
	}
	return len(p), nil
}

// drain yields the buffered values of a channel without blocking.
func drain(from <-chan string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			select {
			case v := <-from:
				if !yield(v) {
					return
				}
			default:
				return
			}
		}
	}
}
