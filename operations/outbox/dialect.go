package outbox

import (
	"strconv"
	"strings"
)

// Dialect is the kind of database.
type Dialect string

// The supported dialects.
const (
	PostgreSQL Dialect = "postgresql"
	SQLite     Dialect = "sqlite"
)

// Schema returns the statements that create the table of an Outbox, for callers with their own migrations. Each
// statement is idempotent. An empty table means the default of [Options].
func Schema(dialect Dialect, table string) []string {
	if table == "" {
		table = "fairlead_outbox"
	}
	return schema(dialect, table)
}

func schema(dialect Dialect, table string) []string {
	sequence := "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	if dialect == SQLite {
		sequence = "INTEGER PRIMARY KEY AUTOINCREMENT" // never reuses a number
	}
	// Times are microseconds since 1970, zero for none.
	statements := []string{
		`CREATE TABLE IF NOT EXISTS {table} (
	seq ` + sequence + `,
	id TEXT NOT NULL UNIQUE,
	order_key TEXT NOT NULL,
	payload TEXT NOT NULL,
	state TEXT NOT NULL DEFAULT 'pending',
	attempts BIGINT NOT NULL DEFAULT 0,
	enqueued_at BIGINT NOT NULL,
	due_at BIGINT NOT NULL,
	leased_until BIGINT NOT NULL DEFAULT 0,
	lease TEXT NOT NULL DEFAULT '',
	finished_at BIGINT NOT NULL DEFAULT 0,
	last_error TEXT NOT NULL DEFAULT ''
)`,
		`CREATE INDEX IF NOT EXISTS {table}_pending ON {table} (seq) WHERE state = 'pending'`,
		`CREATE INDEX IF NOT EXISTS {table}_key ON {table} (order_key, seq) WHERE state = 'pending'`,
		`CREATE INDEX IF NOT EXISTS {table}_ended ON {table} (state, finished_at) WHERE state <> 'pending'`,
	}
	for i, s := range statements {
		statements[i] = strings.ReplaceAll(s, "{table}", table)
	}
	return statements
}

// statements holds the statements for one table, in the dialect of its database.
type statements struct {
	insert, byID, claim, end, postpone, release, clean, rejected, requeue, stats string
}

// eligible selects the pending entries that are due, not leased, and the first of their key. The subquery is one lookup
// in the key index per row until the limit is reached. A NOT EXISTS could become a join over all pending rows.
const eligible = `SELECT o.seq FROM {table} AS o
	WHERE o.state = 'pending' AND o.due_at <= {now} AND o.leased_until <= {now}
	AND o.seq = (SELECT MIN(p.seq) FROM {table} AS p WHERE p.order_key = o.order_key AND p.state = 'pending')
	ORDER BY o.seq LIMIT ?`

// now returns an expression for the clock of the database, or for the parameter if it is not null. The value is
// constant within a statement.
func now(dialect Dialect) string {
	if dialect == SQLite {
		return `COALESCE(?, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))`
	}
	return `COALESCE(?::bigint, (EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint)`
}

const claimed = `RETURNING seq, id, order_key, payload, attempts, enqueued_at`

func newStatements(dialect Dialect, table string) statements {
	claim := `UPDATE {table} SET leased_until = {now} + ?, lease = ?, attempts = attempts + 1 WHERE seq IN (` + eligible +
		`) ` + claimed
	if dialect == PostgreSQL {
		// The relay that gets the row lock writes the lease; rows that another relay is claiming are skipped.
		// MATERIALIZED, because a subquery with LIMIT and row locks must run only once.
		claim = `WITH due AS MATERIALIZED (` + eligible +
			` FOR UPDATE OF o SKIP LOCKED), lease AS (SELECT {now} + ?::bigint AS until, ?::text AS token)
	UPDATE {table} SET leased_until = lease.until, lease = lease.token, attempts = attempts + 1
	FROM due, lease WHERE {table}.seq = due.seq ` + strings.Replace(claimed, "seq,", "{table}.seq,", 1)
	}
	rewrite := func(s string) string {
		s = strings.NewReplacer("{table}", table, "{now}", now(dialect)).Replace(s)
		if dialect == PostgreSQL {
			s = numbered(s)
		}
		return s
	}
	return statements{
		insert: rewrite(
			`INSERT INTO {table} (id, order_key, payload, enqueued_at, due_at) VALUES (?, ?, ?, {now}, 0) ON CONFLICT (id) DO NOTHING`,
		),
		byID:  rewrite(`SELECT order_key, payload FROM {table} WHERE id = ?`),
		claim: rewrite(claim),
		end: rewrite(`UPDATE {table} SET state = ?, finished_at = {now}, last_error = ?, lease = '', leased_until = 0
	WHERE seq = ? AND lease = ? AND state = 'pending'`),
		postpone: rewrite(`UPDATE {table} SET due_at = {now} + ?, last_error = ?, lease = '', leased_until = 0
	WHERE seq = ? AND lease = ? AND state = 'pending'`),
		release: rewrite(`UPDATE {table} SET attempts = attempts - 1, lease = '', leased_until = 0
	WHERE seq = ? AND lease = ? AND state = 'pending'`),
		clean: rewrite(`DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table}
	WHERE state = 'delivered' AND finished_at <= {now} - ? ORDER BY finished_at LIMIT ?)`),
		rejected: rewrite(`SELECT id, order_key, payload, attempts, enqueued_at, finished_at, last_error FROM {table}
	WHERE state = 'rejected' ORDER BY finished_at DESC, seq DESC LIMIT ?`),
		requeue: rewrite(
			`UPDATE {table} SET state = 'pending', due_at = 0, finished_at = 0, attempts = 0 WHERE id = ? AND state = 'rejected'`,
		),
		stats: rewrite(`SELECT (SELECT COUNT(*) FROM {table} WHERE state = 'pending'),
	(SELECT COUNT(*) FROM {table} WHERE state = 'rejected'),
	(SELECT COALESCE(MIN(enqueued_at), 0) FROM {table} WHERE state = 'pending')`),
	}
}

// numbered replaces each question mark by $1, $2 and so on.
func numbered(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if r != '?' {
			b.WriteRune(r)
			continue
		}
		n++
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}
