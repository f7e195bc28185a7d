package outbox

import (
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason  string
		dialect Dialect
		table   string
		ok      bool
	}{
		{"PostgreSQL with the default table", PostgreSQL, "", true},
		{"SQLite with a table", SQLite, "my_outbox", true},
		{"no dialect", "", "", false},
		{"another dialect", "mysql", "", false},
		{"SQL is not a name", SQLite, "x; DROP TABLE y", false},
		{"quotes are not a name", SQLite, `"x"`, false},
		{"names are lower case, as PostgreSQL folds them", PostgreSQL, "Outbox", false},
		{"room for the names of the indexes", PostgreSQL, strings.Repeat("x", 41), false},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			_, err := Open(new(sql.DB), tt.dialect, Options{Table: tt.table})
			if ok := err == nil; ok != tt.ok {
				t.Errorf("got %v, want accepted %v", err, tt.ok)
			}
			if err != nil && !errors.Is(err, ErrInvalid) {
				t.Errorf("%v is not ErrInvalid", err)
			}
		})
	}
}

func TestEnqueueRefusesBeforeItWrites(t *testing.T) {
	t.Parallel()
	box, err := Open(new(sql.DB), PostgreSQL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	good := Entry{ID: "a", Key: "k", Payload: json.RawMessage(`{}`)}
	for _, tt := range []struct {
		reason string
		change func(*Entry)
	}{
		{"no id", func(e *Entry) { e.ID = "" }},
		{"a long id", func(e *Entry) { e.ID = strings.Repeat("x", maxIDBytes+1) }},
		{"a long key", func(e *Entry) { e.Key = strings.Repeat("x", maxKeyBytes+1) }},
		{"a long payload", func(e *Entry) { e.Payload = json.RawMessage(`"` + strings.Repeat("x", maxPayloadBytes) + `"`) }},
		{"an id that is not text", func(e *Entry) { e.ID = "\xff" }},
		{"a key with a zero byte", func(e *Entry) { e.Key = "a\x00" }},
		{"a payload that is not text", func(e *Entry) { e.Payload = json.RawMessage("\"\xff\"") }},
		{"no payload", func(e *Entry) { e.Payload = nil }},
		{"a payload that is not JSON", func(e *Entry) { e.Payload = json.RawMessage(`{`) }},
		{"two payloads", func(e *Entry) { e.Payload = json.RawMessage(`1 2`) }},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			e := good
			tt.change(&e)
			if err := box.Enqueue(t.Context(), nil, e); !errors.Is(err, ErrInvalid) { // a nil transaction would panic
				t.Errorf("got %v, want ErrInvalid", err)
			}
		})
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	if err := Reject(nil); err != nil {
		t.Errorf("Reject(nil) is %v", err)
	}
	if err := RetryAfter(time.Second, nil); err != nil {
		t.Errorf("RetryAfter(nil) is %v", err)
	}
	for _, err := range []error{Reject(cause), RetryAfter(time.Second, cause)} {
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "cause") {
			t.Errorf("%v does not wrap its cause", err)
		}
	}
	var p *postponement
	if !errors.As(RetryAfter(-time.Second, cause), &p) || p.after != 0 {
		t.Errorf("a negative wait is %v", p.after)
	}
}

func TestRunNeedsOutboxAndDeliver(t *testing.T) {
	t.Parallel()
	for _, r := range []*Relay{{}, {Outbox: &Outbox{}}} {
		if err := r.Run(t.Context()); !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		initial := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial"))
		limit := initial + time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "more"))
		attempt := rapid.IntRange(-1, 1<<30).Draw(t, "attempt")
		wait := retryDelay(initial, limit, attempt)
		if wait < initial/2 || wait > limit {
			t.Fatalf("attempt %d: %v, want between half of %v and %v", attempt, wait, initial, limit)
		}
		if attempt > 64 && wait < limit/2 {
			t.Fatalf("attempt %d: %v, want at least half of %v", attempt, wait, limit)
		}
	})
}

func TestNumbered(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff("a = $1 AND b = $2", numbered("a = ? AND b = ?")); diff != "" {
		t.Error(diff)
	}
}

func FuzzStorable(f *testing.F) {
	f.Add("x\x00\xff")
	f.Add(strings.Repeat("ä", maxErrorBytes))
	f.Fuzz(func(t *testing.T, text string) {
		got := storable(text)
		if !utf8.ValidString(got) || strings.ContainsRune(got, 0) || len(got) > 3*maxErrorBytes {
			t.Errorf("%q cannot be stored", got)
		}
	})
}

func TestNotifyWakesEveryWaiter(t *testing.T) {
	t.Parallel()
	box, err := Open(new(sql.DB), SQLite, Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := box.commit.changed(), box.commit.changed()
	box.Notify()
	<-a
	<-b
	select {
	case <-box.commit.changed():
		t.Error("the next waiter was woken by the notification before it")
	default:
	}
}

func TestSchemaHasTheTable(t *testing.T) {
	t.Parallel()
	for _, dialect := range []Dialect{PostgreSQL, SQLite} {
		for _, statement := range Schema(dialect, "") {
			if !strings.Contains(statement, "fairlead_outbox") || strings.Contains(statement, "{table}") {
				t.Errorf("%s: %s", dialect, statement)
			}
		}
	}
}
