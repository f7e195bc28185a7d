package fairlead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// leadership lets one of several processes work at a time.
type leadership struct {
	election reconcile.Leadership // nil: this process works without an election
	log      *slog.Logger
	leading  atomic.Bool // this process leads; used only with an election
}

// newLeadership returns the leadership that the options ask for, which may be none.
func newLeadership(cfg *rest.Config, o options) (*leadership, error) {
	l := &leadership{election: o.leadership, log: o.logger}
	if v := reflect.ValueOf(l.election); v.IsValid() && v.Kind() == reflect.Pointer && v.IsNil() {
		return l, errors.New("cannot elect a leader: WithLeadership was given nil")
	}
	if o.lease == nil || l.election != nil || cfg == nil { // newHost reports a missing configuration
		return l, nil
	}
	election, err := elect(cfg, o.lease[0], o.lease[1], o)
	if err == nil {
		l.election = election
	}
	return l, err
}

// elect refuses an empty namespace or name, such as the value of an unset variable. With it no process, or every
// process, would be elected.
func elect(cfg *rest.Config, namespace, name string, o options) (reconcile.Leadership, error) {
	if namespace == "" || name == "" {
		return nil,
			fmt.Errorf(
				"cannot elect a leader: WithLeaderElection needs the namespace and the name of a Lease, and has %q and %q",
				namespace, name,
			)
	}
	return lease.New(cfg, lease.Options{
		Namespace: namespace, Name: name, Logger: o.logger, TracerProvider: o.tracers,
	})
}

// run runs the election until the context ends. It returns nil if the election needs no goroutine.
func (l *leadership) run() func(context.Context) error {
	election, ok := l.election.(interface{ Run(context.Context) error })
	if !ok {
		return nil
	}
	return func(ctx context.Context) error { return election.Run(inherit.With(ctx, l.log)) }
}

// hold waits for leadership and works until the context ends or leadership is lost. The error then matches
// ErrNotLeading.
func (l *leadership) hold(ctx context.Context, work func(context.Context) error) error {
	term, done, err := l.election.Lead(ctx)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	defer done()
	l.leading.Store(true)
	defer l.leading.Store(false)
	bound := binding.With(ctx, binding.Binding{
		Fence:          func() error { return l.election.Fence(term) },
		RequireVersion: true,
	})
	bound, end := context.WithCancelCause(bound)
	defer end(nil)
	var lost atomic.Bool
	forget := context.AfterFunc(term, func() {
		if ctx.Err() == nil { // else term may be derived from ctx and has ended with it
			lost.Store(true)
			l.leading.Store(false)
			end(ErrNotLeading)
		}
	})
	err = work(bound)
	if forget(); lost.Load() {
		l.log.ErrorContext(ctx, "leadership lost")
		err = errors.Join(ErrNotLeading, err)
	}
	return err
}

// leader returns a description of the current leader. It returns an error if this process cannot take over from it.
func (l *leadership) leader() (string, error) {
	knows, ok := l.election.(interface {
		Status() (leader string, err error)
	})
	if !ok {
		return "another process leads", nil
	}
	leader, err := knows.Status()
	if err == nil && leader == "" {
		err = errors.New("there is no leader, or it is not known yet")
	}
	if at, ok := l.election.(interface{ Address() string }); ok && err == nil && at.Address() != "" {
		leader += ", at " + at.Address()
	}
	return "another process leads: " + leader, err
}

// metric reports whether this process leads.
func (l *leadership) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_leading", Help: "1 while this process leads, 0 while it waits for leadership.",
	}, func() float64 {
		if l.leading.Load() {
			return 1
		}
		return 0
	})
}
