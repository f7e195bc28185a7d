package source

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// The helpers below build one part of a scope without the others.

func partConfig(change ...func(*Config)) *Config {
	c := Config{Rand: func() float64 { return 0 }}
	for _, f := range change {
		f(&c)
	}
	c = c.withDefaults()
	return &c
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// header returns an object with only a header.
func header(namespace, name, version string) *Object {
	return &Object{Raw: []byte("{}"), Header: Header{
		Namespace: []byte(namespace), Name: []byte(name), UID: []byte("uid-" + name), ResourceVersion: []byte(version),
	}}
}

// answers serves one body for each request. An empty body is a failed request.
type answers struct {
	bodies  []string
	queries []query
}

func (a *answers) open(ctx context.Context, q query) (*stream, error) {
	a.queries = append(a.queries, q)
	if len(a.bodies) == 0 || a.bodies[0] == "" {
		a.bodies = a.bodies[min(1, len(a.bodies)):]
		return nil, &APIError{Code: 500}
	}
	body := a.bodies[0]
	a.bodies = a.bodies[1:]
	return openStream(ctx, q.ends(), func(context.Context, *stream) (io.ReadCloser, decoder, error) {
		return io.NopCloser(strings.NewReader(body)), newDecoder(q.watch, "application/json"), nil
	}), nil
}

// item returns an object in JSON.
func item(name, version string) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"ns","name":%q,"uid":"uid-%s","resourceVersion":%q}}`,
		name, name, version)
}

func podList(version, next string, items ...string) string {
	return fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`,
		version, next, strings.Join(items, ","))
}

func frameOf(change, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", change, object)
}

// memory is a Sink that records calls as text and keeps no objects.
type memory struct {
	calls  []string
	count  int // the count that Known returns
	refuse error
	staged *memoryReplacement
	miss   int // the missing objects that Missing returns
}

func (m *memory) note(format string, args ...any) {
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
}

func (m *memory) Known() Known { return Known{Count: m.count} }
func (m *memory) Replace() Replacement {
	m.staged = &memoryReplacement{m: m}
	return m.staged
}

func (m *memory) Apply(t ChangeType, o *Object) error {
	m.note("%s %s %s", t, o.Header.Name, o.Header.ResourceVersion)
	return m.refuse
}
func (m *memory) Bookmark(version string)  { m.note("BOOKMARK %s", version) }
func (m *memory) Quarantine(q Quarantined) { m.note("QUARANTINE %s", q.Name) }
func (m *memory) Report(Status)            {}

type memoryReplacement struct{ m *memory }

func (r *memoryReplacement) Put(o *Object) error {
	r.m.note("put %s", o.Header.Name)
	return r.m.refuse
}
func (r *memoryReplacement) Remove(o *Object)    { r.m.note("remove %s", o.Header.Name) }
func (r *memoryReplacement) Missing() (int, int) { return r.m.miss, r.m.count }
func (r *memoryReplacement) Commit(c Commit)     { r.m.note("commit %s", c.Version) }
func (r *memoryReplacement) Abort()              { r.m.note("abort") }

// steps records the progress of a list or a watch.
type steps struct {
	list []string
}

func (s *steps) note(step string)                  { s.list = append(s.list, step) }
func (s *steps) contact()                          { s.note("contact") }
func (s *steps) listStarted()                      { s.note("starts") }
func (s *steps) listOpened()                       { s.note("opened") }
func (s *steps) listSynced()                       { s.note("synced") }
func (s *steps) degraded(reason Reason, _ error)   { s.note("degraded " + string(reason)) }
func (s *steps) repairing(reason Reason, _ error)  { s.note("repairing " + string(reason)) }
func (s *steps) retrying(_ time.Duration, _ error) { s.note("retrying") }
func (s *steps) watchOpened()                      { s.note("opens") }
func (s *steps) firstEvent()                       { s.note("delivers") }
func (s *steps) watchWorks()                       { s.note("up") }
func (s *steps) stayedOpen()                       { s.note("lasted") }
func (s *steps) caughtUp()                         { s.note("catches up") }
func (s *steps) requestList()                      { s.note("needs list") }

func (s *steps) count(step string) (n int) {
	for _, other := range s.list {
		if other == step {
			n++
		}
	}
	return n
}

// without returns the calls without one that repeats for each batch.
func (s *steps) without(step string) []string {
	return slices.DeleteFunc(slices.Clone(s.list), func(other string) bool { return other == step })
}

// fixture has the parts that a lister or a watcher needs, over a recorded server and sink.
type fixture struct {
	cfg     *Config
	server  *answers
	sink    *memory
	steps   *steps
	counts  Counters
	pos     position
	kinds   kindCheck
	filter  *slotFilter
	names   *namespaces
	prober  *prober
	resume  resumption
	reopens int // new connections
}

func newFixture(t *testing.T, cfg *Config, bodies ...string) *fixture {
	t.Helper()
	r := &fixture{
		cfg: cfg, server: &answers{bodies: bodies}, sink: &memory{}, steps: &steps{}, names: &namespaces{},
	}
	r.kinds = kindCheck{apiVersion: "v1", excerpt: cfg.excerpt, isSinkEmpty: func() bool { return r.sink.count == 0 }}
	r.filter = newSlotFilter(nil, r.names, &r.counts)
	r.prober = &prober{
		cfg: cfg, log: discard(), open: r.server.open, reconnect: r.reconnect, contact: r.steps.contact,
		counts: &r.counts, kinds: &r.kinds, pos: &r.pos,
	}
	return r
}

func (r *fixture) reconnect() { r.reopens++ }

func (r *fixture) quarantine() *quarantine {
	return &quarantine{cfg: r.cfg, log: discard(), sink: r.sink, counts: &r.counts, added: func(error) {}}
}

func (r *fixture) lister() *lister {
	return &lister{
		cfg: r.cfg, log: discard(), open: r.server.open, reconnect: r.reconnect, counts: &r.counts, pos: &r.pos,
		kinds: &r.kinds, filter: r.filter, names: r.names, prober: r.prober, progress: r.steps,
		stager: &stager{sink: r.sink, kinds: &r.kinds, filter: r.filter, quarantine: r.quarantine()},
		pager:  &pager{cfg: r.cfg, log: discard(), open: r.server.open, kinds: &r.kinds, progress: r.steps},
		initial: &initialEvents{
			cfg: r.cfg, log: discard(), counts: &r.counts, kinds: &r.kinds, filter: r.filter, prober: r.prober,
			progress: r.steps,
		},
	}
}

func (r *fixture) watcher() *watcher {
	return &watcher{
		cfg: r.cfg, log: discard(), open: r.server.open, sink: r.sink, counts: &r.counts, pos: &r.pos, kinds: &r.kinds,
		filter: r.filter, prober: r.prober, resume: &r.resume, quarantine: r.quarantine(), progress: r.steps,
	}
}
