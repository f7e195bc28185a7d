package source_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
)

// counter is a Sink that counts.
type counter struct {
	known     string
	until     int64 // changes
	puts      atomic.Int64
	applied   atomic.Int64
	bytes     atomic.Int64
	bad       atomic.Int64
	committed chan struct{}
}

func (c *counter) Known() source.Known         { return source.Known{Version: c.known} }
func (c *counter) Replace() source.Replacement { return c }
func (c *counter) Apply(_ source.ChangeType, o *source.Object) error {
	if c.applied.Add(1) == c.until {
		close(c.committed)
	}
	c.bytes.Add(int64(len(o.Raw)))
	return nil
}
func (c *counter) Bookmark(string)               {}
func (c *counter) Quarantine(source.Quarantined) { c.bad.Add(1) }
func (c *counter) Report(source.Status)          {}
func (c *counter) Put(o *source.Object) error {
	c.puts.Add(1)
	c.bytes.Add(int64(len(o.Raw)))
	return nil
}
func (c *counter) Remove(*source.Object) {}
func (c *counter) Missing() (int, int)   { return 0, 0 }
func (c *counter) Commit(source.Commit)  { close(c.committed) }
func (c *counter) Abort()                {}

func newPlainServer(tb testing.TB, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)
	return s
}

func runUntilApplied(tb testing.TB, server *httptest.Server, objects int) {
	c := &counter{known: "10", until: int64(objects), committed: make(chan struct{})}
	run(tb, server, c, true)
	if n := c.bad.Load(); n != 0 {
		tb.Errorf("%d quarantined", n)
	}
}

func runUntilCommit(tb testing.TB, server *httptest.Server, watchList bool, objects int) {
	c := &counter{committed: make(chan struct{})}
	run(tb, server, c, watchList)
	if n := c.puts.Load(); n != int64(objects) {
		tb.Errorf("%d objects put, want %d", n, objects)
	}
}

// run runs a source until the counter has reached its target.
func run(tb testing.TB, server *httptest.Server, c *counter, watchList bool) {
	src, err := source.New(source.Config{
		REST: &rest.Config{Host: server.URL}, Resource: configMaps,
		NoWatchList: !watchList, PageSize: -1,
	},
		func(string) source.Sink { return c })
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- src.Run(ctx) }()
	<-c.committed
	cancel()
	if err := <-done; err != nil {
		tb.Error(err)
	}
}
