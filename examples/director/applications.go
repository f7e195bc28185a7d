package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/outbox"
)

// Application is a row of the director's table.
type Application struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Webhook   *Webhook  `json:"webhook,omitempty"`
	Ready     bool      `json:"ready"`
	Error     string    `json:"error,omitempty"`
	CreatedAt time.Time `json:"createdAt"`

	operationID string // of the operation in progress
}

// Webhook is the cleanup endpoint of the line-of-business application.
type Webhook struct {
	URL string `json:"url"`
	// Mode is Sync (default) or Async.
	Mode string `json:"mode,omitempty"`
}

// refusal is an error with an HTTP status that is reported to the caller.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string   { return r.text }
func (r *refusal) HTTPStatus() int { return r.status }

// applications is the table of applications, in SQLite. A change that needs an operation enqueues it in the same
// transaction: a rolled back change has no operation, and a committed change always has one.
type applications struct {
	db  *sql.DB
	box *outbox.Outbox
}

const schema = `CREATE TABLE IF NOT EXISTS applications (
	id TEXT PRIMARY KEY, name TEXT NOT NULL, webhook TEXT NOT NULL, created_at TEXT NOT NULL,
	ready INTEGER NOT NULL, error TEXT NOT NULL, operation_id TEXT NOT NULL)`

func openApplications(ctx context.Context, path string) (*applications, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("cannot open database: %w", err)
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot prepare database %s: %w", path, err), db.Close())
	}
	box, err := outbox.Open(db, outbox.SQLite, outbox.Options{})
	if err == nil {
		err = box.EnsureSchema(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot prepare database %s: %w", path, err), db.Close())
	}
	return &applications{db: db, box: box}, nil
}

func (a *applications) close() error { return a.db.Close() }

func (a *applications) create(ctx context.Context, app Application) (Application, error) {
	app.ID, app.Ready, app.CreatedAt, app.Error = uuid.NewString(), true, time.Now().UTC().Truncate(time.Millisecond), ""
	webhook, err := json.Marshal(app.Webhook)
	if err != nil {
		return app, err
	}
	_, err = a.db.ExecContext(ctx, `INSERT INTO applications (id, name, webhook, created_at, ready, error, operation_id)
		VALUES (?, ?, ?, ?, 1, '', '')`, app.ID, app.Name, string(webhook), app.CreatedAt.Format(time.RFC3339Nano))
	if err != nil {
		return app, fmt.Errorf("cannot store application: %w", err)
	}
	return app, nil
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

const columns = `SELECT id, name, webhook, created_at, ready, error, operation_id FROM applications `

func (a *applications) get(ctx context.Context, id string) (Application, error) {
	return one(ctx, a.db, id)
}

func one(ctx context.Context, q querier, id string) (Application, error) {
	found, err := query(ctx, q, columns+`WHERE id = ?`, id)
	if err != nil {
		return Application{}, err
	}
	if len(found) == 0 {
		return Application{}, &refusal{404, "there is no application " + id}
	}
	return found[0], nil
}

func (a *applications) list(ctx context.Context) ([]Application, error) {
	return query(ctx, a.db, columns+`ORDER BY created_at, id`)
}

func query(ctx context.Context, q querier, text string, args ...any) (_ []Application, err error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, fmt.Errorf("cannot read applications: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	all := []Application{}
	for rows.Next() {
		var (
			app              Application
			webhook, created string
		)
		if err := rows.Scan(&app.ID, &app.Name, &webhook, &created, &app.Ready, &app.Error, &app.operationID); err != nil {
			return nil, fmt.Errorf("cannot read applications: %w", err)
		}
		if err := json.Unmarshal([]byte(webhook), &app.Webhook); err != nil {
			return nil, fmt.Errorf("cannot read webhook of application %s: %w", app.ID, err)
		}
		if app.CreatedAt, err = time.Parse(time.RFC3339Nano, created); err != nil {
			return nil, fmt.Errorf("cannot read application %s: %w", app.ID, err)
		}
		all = append(all, app)
	}
	return all, rows.Err()
}

// unregister marks an application as not ready and enqueues its operation, in one transaction.
func (a *applications) unregister(ctx context.Context, id, operationID string) (_ operations.Request, err error) {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return operations.Request{}, fmt.Errorf("cannot begin transaction: %w", err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // the first error is returned
		}
	}()
	app, err := one(ctx, tx, id)
	if err != nil {
		return operations.Request{}, err
	}
	if !app.Ready {
		return operations.Request{}, &refusal{409, "another operation of application " + id + " is in progress"}
	}
	request := unregistration(app, operationID)
	payload, err := json.Marshal(request)
	if err != nil {
		return request, err
	}
	if _, err = tx.ExecContext(ctx, `UPDATE applications SET ready = 0, error = '', operation_id = ? WHERE id = ?`,
		operationID, id); err != nil {
		return request, fmt.Errorf("cannot mark application %s: %w", id, err)
	}
	if err = a.box.Enqueue(ctx, tx, outbox.Entry{
		ID: operationID, Key: request.Resource.String(), Payload: payload,
	}); err != nil {
		return request, err
	}
	if err = tx.Commit(); err != nil {
		return request, fmt.Errorf("cannot commit: %w", err)
	}
	a.box.Notify()
	return request, nil
}

// unregistration is the operation that unregisters an application.
func unregistration(app Application, operationID string) operations.Request {
	request := operations.Request{
		ID: operationID, Type: operations.Delete, Category: "unregisterApplication",
		Resource: operations.Resource{Type: resourceType, ID: app.ID}, CorrelationID: operationID, Object: app,
	}
	if app.Webhook != nil {
		request.Webhooks = []string{webhookName(app.ID)}
	}
	return request
}

// ended applies the outcome of an operation: it deletes the row, or on failure makes it ready again and records the
// error. It ignores an operation that is not the current operation of the row.
func (a *applications) ended(ctx context.Context, id, operationID, failure string) error {
	statement, args := `DELETE FROM applications WHERE id = ? AND operation_id = ?`, []any{id, operationID}
	if failure != "" {
		statement = `UPDATE applications SET ready = 1, error = ?, operation_id = '' WHERE id = ? AND operation_id = ?`
		args = []any{failure, id, operationID}
	}
	if _, err := a.db.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("cannot record outcome of operation %s: %w", operationID, err)
	}
	return nil
}
