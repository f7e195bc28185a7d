package source

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// quietStream returns an open stream without events, and the number of times that its connection was abandoned.
func quietStream(t *testing.T) (*stream, *int) {
	t.Helper()
	st, _, abandoned := pipedStream(t)
	return st, abandoned
}

// pipedStream is quietStream with a server side that the test writes.
func pipedStream(t *testing.T) (*stream, *io.PipeWriter, *int) {
	t.Helper()
	body, server := io.Pipe()
	abandoned := new(int)
	st := openStream(t.Context(), time.Minute, func(_ context.Context, st *stream) (io.ReadCloser, decoder, error) {
		st.connected(func() { *abandoned++ })
		return body, newDecoder(true, "application/json"), nil
	})
	t.Cleanup(func() {
		server.Close()
		st.close()
	})
	st.receive(<-st.batches()) // the response is open
	return st, server, abandoned
}

// TestProberOnSilence: the version of the server decides what follows a silent watch.
func TestProberOnSilence(t *testing.T) {
	for reason, c := range map[string]struct {
		bodies    []string
		want      error
		abandoned int
	}{
		"an idle server":                 {[]string{podList("5", "")}, nil, 0},
		"a server at a later version":    {[]string{podList("7", "")}, errResume, 1},
		"a server at an earlier version": {[]string{podList("4", "")}, errRolledBack, 0},
		"a server without answer":        {[]string{""}, nil, 1},
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, partConfig(), c.bodies...)
				r.pos.complete("5")
				st, abandoned := quietStream(t)
				err := r.prober.silent(t.Context(), st, true)
				if failed := c.bodies[0] == ""; failed != (err != nil && c.want == nil) || c.want != nil &&
					!errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				if *abandoned != c.abandoned || r.counts.Probes != 1 {
					t.Errorf("abandoned %d times after %d probes", *abandoned, r.counts.Probes)
				}
			})
		})
	}
}

// TestProberIntervalGrows: a watch that never reaches the server's version leads to a list at growing intervals.
func TestProberIntervalGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, partConfig(), podList("7", ""), podList("7", ""))
		r.pos.complete("5")
		budget := r.cfg.SilenceBudget
		st, _ := quietStream(t)
		silent := func() error { return r.prober.silent(t.Context(), st, true) }
		if err := silent(); !errors.Is(err, errResume) {
			t.Fatalf("the first silence leads to %v", err)
		}
		for n, gap := range []time.Duration{budget, 2 * budget, 4 * budget} {
			if err := silent(); !errors.Is(err, ErrSilent) || errors.Is(err, errResume) {
				t.Errorf("silence %d leads to %v", n, err)
			}
			<-time.After(gap - 1)
			if err := silent(); err != nil {
				t.Errorf("silence %d leads to a list again after %v: %v", n, gap-1, err)
			}
			<-time.After(1)
		}
		r.pos.advance([]byte("7"))
		r.prober.progressed()
		if err := silent(); err != nil {
			t.Errorf("a watch that has reached the version leads to %v", err)
		}
	})
}

// TestProberSuspects: older versions in a stream cost one probe per silence budget.
func TestProberSuspects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, partConfig(), podList("6", ""), podList("4", ""))
		r.pos.complete("5")
		for range 3 {
			if err := r.prober.suspect(t.Context()); err != nil {
				t.Errorf("a server ahead leads to %v", err)
			}
		}
		<-time.After(r.cfg.SilenceBudget)
		if err := r.prober.suspect(t.Context()); !errors.Is(err, errRolledBack) || r.counts.Probes != 2 {
			t.Errorf("error %v after %d probes", err, r.counts.Probes)
		}
	})
}

// TestProbeIsBounded: a probe whose answer trickles in does not block the watch.
func TestProbeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, partConfig())
		body, server := io.Pipe()
		r.prober.open = func(ctx context.Context, q query) (*stream, error) {
			return openStream(ctx, q.ends(), func(context.Context, *stream) (io.ReadCloser, decoder, error) {
				return body, newDecoder(false, "application/json"), nil
			}), nil
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for err := error(nil); err == nil; _, err = server.Write([]byte(" ")) {
				select {
				case <-time.After(r.cfg.ListProgressTimeout / 2):
				case <-stop:
					return
				}
			}
		}()
		defer func() {
			close(stop)
			<-stopped
		}()
		began := time.Now()
		_, err := r.prober.version(t.Context())
		if took := time.Since(began); !errors.Is(err, ErrStalled) || took != r.prober.limit() {
			t.Errorf("after %v: %v, want %v after %v", took, err, ErrStalled, r.prober.limit())
		}
	})
}

// TestProbeFailsBesideAWorkingWatch: events that arrive during a probe outweigh its failure.
func TestProbeFailsBesideAWorkingWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, partConfig())
		r.pos.complete("5")
		st, server, abandoned := pipedStream(t)
		r.prober.open = func(context.Context, query) (*stream, error) {
			if _, err := server.Write([]byte(frameOf("ADDED", item("a", "6")))); err != nil {
				t.Error(err)
			}
			synctest.Wait() // the event has arrived
			return nil, &APIError{Code: 500}
		}
		if err := r.prober.silent(t.Context(), st, true); err != nil || *abandoned != 0 {
			t.Errorf("error %v, abandoned %d times", err, *abandoned)
		}
		if !st.hasBatch() {
			t.Error("the watch did not get the event")
		}
	})
}
