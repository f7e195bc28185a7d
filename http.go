package fairlead

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/serve"
)

// httpDrain bounds how long requests in progress may take after the stop.
const httpDrain = 5 * time.Second

// maxScrapes bounds the concurrent reads of the metrics.
const maxScrapes = 8

// describe returns the sources and observers of clusters.
func describe(clusters []*Host) inspect.Sources {
	all := inspect.Sources{Sources: []inspect.Source{}}
	for _, c := range clusters {
		d := c.observers.Describe()
		all.Sources = append(all.Sources, d.Sources...)
		all.Unmatched = append(all.Unmatched, d.Unmatched...)
	}
	return all
}

// sourcesOf returns the declared sources of clusters, then the other watched stores.
func sourcesOf(clusters []*Host) sources {
	all := describe(clusters).Sources
	for _, c := range clusters {
		all = append(all, c.observers.DescribeOthers(c.conn.stores())...)
	}
	return all
}

// sources prints sources without their observers and with the counters of each scope.
type sources []inspect.Source

// String returns one line per source and scope.
func (s sources) String() string {
	var b strings.Builder
	for _, d := range s {
		d.Observers = nil
		fmt.Fprint(&b, inspect.Sources{Sources: []inspect.Source{d}})
		for _, st := range d.Status {
			fmt.Fprintf(&b, "  %q: %s since %s, staleness %v, %+v\n", st.Namespace, st.Reason, st.Since.Format(time.RFC3339),
				st.Staleness.Round(time.Millisecond), st.Counters)
		}
	}
	return b.String()
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, strings.TrimRight(body, "\n")) // an error means that the caller has disconnected
}

// Serve answers requests until the context ends. Requests in progress then have up to five seconds to finish. Serve
// closes the listener. At most 2,048 connections are open, shared among the client addresses; at the bound, idle
// connections are closed first. A request header may take 10 seconds and a body 30, unless the handler sets another
// deadline (http.ResponseController). A connection waits two minutes for the next request.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	if listener == nil || handler == nil {
		return errors.New("cannot serve: no listener, or nothing to serve")
	}
	return serve.New(handler, serve.Options{Drain: httpDrain}).Run(ctx, listener)
}
