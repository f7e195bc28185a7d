// Package e2e_test runs the program outbox, and the tests of package operations/outbox, on a PostgreSQL server of their
// own.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/examples/outbox/internal/outboxtest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations/outbox"
)

var (
	example program.Program
	// server is set before the first test runs.
	server *postgres
)

func TestMain(m *testing.M) {
	if outboxtest.IsChild() {
		os.Exit(outboxtest.Child())
	}
	goleak.VerifyTestMain(example.Main(withPostgres{m}))
}

// withPostgres runs tests while a PostgreSQL server runs.
type withPostgres struct{ tests *testing.M }

func (w withPostgres) Run() int {
	var err error
	if server, err = startPostgres(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := w.tests.Run()
	if err := server.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "cannot stop PostgreSQL:", err)
		code = 1
	}
	return code
}

// The program, on PostgreSQL.
func TestExample(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := example.Start(t, program.Options{Args: []string{"-dsn", server.dsn()}})
	p.Wait(ctx)
	outboxtest.CheckExample(t, p.Output())
}

// Package operations/outbox, on PostgreSQL.
func TestOutbox(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(*testing.T) outboxtest.Database {
		return outboxtest.Database{Dialect: outbox.PostgreSQL, Driver: "pgx", DSN: server.dsn()}
	})
}
