package store_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// thing is a small object of the tests.
type thing struct {
	ns, name, uid string
	version       int
	labels        string // `"a":"b","c":"d"`
	owner         string
	more          string // members after metadata, with a leading comma
	meta          string // members of metadata, with a leading comma
}

func (t thing) key() store.Key { return store.Key{Namespace: t.ns, Name: t.name} }

func (t thing) json() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"uid":%q`, t.name, t.uid)
	if t.ns != "" {
		fmt.Fprintf(&b, `,"namespace":%q`, t.ns)
	}
	if t.version != 0 {
		fmt.Fprintf(&b, `,"resourceVersion":"%d"`, t.version)
	}
	if t.labels != "" {
		fmt.Fprintf(&b, `,"labels":{%s}`, t.labels)
	}
	if t.owner != "" {
		fmt.Fprintf(&b, `,"ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":%q,"controller":true}]`, t.owner)
	}
	b.WriteString(t.meta + "}" + t.more + "}")
	return []byte(b.String())
}

func object(raw []byte) *source.Object {
	o := &source.Object{Raw: raw}
	if err := source.Scan(source.JSON, raw, &o.Header); err != nil {
		panic(err)
	}
	return o
}

func (t thing) object() *source.Object { return object(t.json()) }

func newStore(t testing.TB, opt store.Options) *store.Store {
	s := store.New(opt)
	t.Cleanup(s.Close)
	return s
}

// list replaces the content of a scope.
func list(t testing.TB, sink source.Sink, version int, things ...thing) {
	t.Helper()
	r := sink.Replace()
	for _, x := range things {
		if err := r.Put(x.object()); err != nil {
			t.Fatal(err)
		}
	}
	r.Commit(source.Commit{Version: fmt.Sprint(version)})
}

func apply(t testing.TB, sink source.Sink, typ source.ChangeType, x thing) {
	t.Helper()
	if err := sink.Apply(typ, x.object()); err != nil {
		t.Fatal(err)
	}
}

// drain takes all pending events.
func drain(c *store.Cursor) (out []store.Event) {
	for {
		events := c.Take(100)
		if len(events) == 0 {
			return out
		}
		out = append(out, events...)
	}
}

// summary formats events: "ADDED ns/a@5 (initial)".
func summary(events []store.Event) []string {
	var out []string
	for _, e := range events {
		text := e.Type.String()
		if e.Object != nil {
			text += fmt.Sprintf(" %s@%s", e.Key, e.Object.Version())
		}
		if e.Prior != nil {
			text += "<" + e.Prior.Version()
		}
		if e.Initial {
			text += " initial"
		}
		if e.Inferred {
			text += " inferred"
		}
		out = append(out, text)
	}
	return out
}
