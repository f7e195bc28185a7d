package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/examples/outbox/internal/outboxtest"
	"github.com/fairlead-io/fairlead/operations/outbox"
)

func TestMain(m *testing.M) {
	if outboxtest.IsChild() {
		os.Exit(outboxtest.Child())
	}
	goleak.VerifyTestMain(m)
}

// The program, on SQLite in memory.
func TestExample(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), "", &out); err != nil {
		t.Fatal(err)
	}
	outboxtest.CheckExample(t, out.String())
}

// Package operations/outbox, on SQLite.
func TestOutbox(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(t *testing.T) outboxtest.Database {
		return outboxtest.Database{
			Dialect: outbox.SQLite, Driver: "sqlite",
			DSN: "file:" + filepath.Join(t.TempDir(), "db") +
				"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_txlock=immediate",
		}
	})
}
