package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options are the flags. Environment variables set the defaults of some.
type options struct {
	objects, rounds, events, rate, blocked int
	buckets                                int           // number of values of the index
	span                                   time.Duration // duration of row S4
	settle                                 time.Duration // delay after the sync for background work
	limit                                  time.Duration // time limit of a row
	reserve                                int64         // bytes of memory to keep free
	set                                    string        // set of peers
	peers, rows                            []string      // nil: all
	profile, out                           string
}

func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

func fromCommandLine() options {
	o := options{reserve: reserveOf(), settle: 3 * time.Second}
	flag.IntVar(&o.objects, "objects", number("BENCH_OBJECTS", 100_000), "objects of each kind")
	flag.IntVar(&o.rounds, "rounds", number("BENCH_ROUNDS", 3), "how often each peer is measured")
	flag.IntVar(&o.events, "events", number("BENCH_EVENTS", 100_000),
		"changes of row S3, of one object each; slow peers are given a third")
	flag.IntVar(&o.rate, "rate", number("BENCH_RATE", 2000), "events per second of row S4")
	flag.IntVar(&o.blocked, "blocked", number("BENCH_BLOCKED", 100_000), "updates of row S7, of 1,000 keys")
	flag.IntVar(&o.buckets, "buckets", int(buckets), "values of the index: a List is of objects/buckets")
	flag.StringVar(&o.set, "set", mainSet, "peers: main, or adapter (controller-runtime, stock and on our stores)")
	flag.DurationVar(&o.span, "span", time.Duration(number("BENCH_SECONDS", 60))*time.Second,
		"duration of row S4; unless -rows names it, only the first round measures it")
	flag.DurationVar(&o.limit, "limit", 4*time.Minute,
		"a peer that takes longer for one row is ended, and the row says so")
	flag.StringVar(&o.profile, "profile", os.Getenv("BENCH_PROFILE"), "a directory for CPU profiles of the first round")
	flag.StringVar(&o.out, "o", os.Getenv("BENCH_OUT"),
		"a file for the tables, written anew after each peer; in one that has "+
			"the markers of docs/internals/benchmarks.md, only what is between them")
	list := func(into *[]string, name, separator, otherwise, usage string) {
		flag.Func(name, usage, func(s string) error { *into = strings.Split(s, separator); return nil })
		if otherwise != "" {
			*into = strings.Split(otherwise, separator)
		}
	}
	list(&o.peers, "peers", ";", os.Getenv("BENCH_PEERS"), "only these, separated by semicolons (default all)")
	list(&o.rows, "rows", ",", "", "only these, separated by commas: S3,S5 (default all; S1 always)")
	flag.Parse()
	return o
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "watchbench:", err)
		os.Exit(1)
	}
}

func run() error {
	if name := os.Getenv(childEnv); name != "" {
		return runChild(name)
	}
	o := fromCommandLine()
	// Most memory of this process is live objects. The default GOGC would double it, and the peers need that memory.
	debug.SetGCPercent(25)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	t, err := compare(ctx, o, func(s string) { fmt.Fprintln(os.Stderr, s) })
	if t != nil {
		t.write(os.Stdout)
	}
	return err
}

// compare runs all rounds. It records the failure of a peer and continues with the others.
func compare(ctx context.Context, o options, say func(string)) (*tables, error) {
	for _, p := range o.peers {
		if specByName(p) < 0 {
			return nil, fmt.Errorf("cannot find peer %q", p)
		}
	}
	t := newTables(o)
	f, err := newFixture(o)
	if err != nil {
		return nil, err
	}
	defer f.server.Close()
	say(fmt.Sprintf("%d objects of each kind took %.0f s; this process has %s", o.objects, time.Since(t.began).Seconds(),
		mega(float64(atRest()))))
	var failures []error
	for round := range o.rounds {
		for i, spec := range specs {
			if !o.measures(spec.name) || round > 0 && spec.rows == listOnly {
				continue
			}
			begin := time.Now()
			took, err := measure(ctx, f, o, t, i, round)
			t.took = time.Since(t.began)
			f.server.Compact(0)
			say(fmt.Sprintf("round %d of %d: %s took %.0f s (%s); this process had %s", round+1, o.rounds, spec.name,
				time.Since(begin).Seconds(), strings.Join(took, ", "), peakSince()))
			if saveErr := t.save(o.out); saveErr != nil {
				return t, saveErr
			}
			if ctx.Err() != nil {
				return t, errors.Join(append(failures, context.Cause(ctx))...)
			}
			if err != nil {
				err = fmt.Errorf("%s, round %d: %w", spec.name, round+1, err)
				say(err.Error())
				failures = append(failures, err)
			}
		}
	}
	return t, errors.Join(failures...)
}

// peakSince returns the peak of this process's resident memory since the last call. It then returns free memory to
// the system.
func peakSince() string {
	_, peak := memory()
	debug.FreeOSMemory()
	resetPeak()
	return mega(float64(peak))
}

func (o options) measures(peer string) bool {
	if len(o.peers) == 0 {
		return setOf(peer) == o.set
	}
	return slices.Contains(o.peers, peer)
}

// wants reports whether a row was requested.
func (o options) wants(row string) bool {
	return len(o.rows) == 0 || row == "S1" ||
		slices.Contains(o.rows, row) || slices.Contains(o.rows, map[string]string{"S3header": "S3", "PAGED": "LIST"}[row])
}

// row is one measurement of a session.
type row struct {
	name    string
	measure func(context.Context) error
}

// measure runs one round of one peer: a session with a WatchList, and in the first round also sessions with a LIST.
func measure(ctx context.Context, f *fixture, o options, t *tables, spec, round int) (took []string, err error) {
	wanted := func(name string) bool {
		return slices.Contains(strings.Fields(specs[spec].rows), name) && o.wants(name)
	}
	measured := func(list bool, rows func(s *session) []row) error {
		ctxOfChild, s, err := newSession(ctx, f, o, spec, list)
		if err != nil {
			return err
		}
		defer s.close()
		var todo []row
		for _, r := range rows(s) {
			if t.failed(specs[spec].name, r.name) {
				break // it failed in an earlier round, too
			}
			if wanted(r.name) {
				todo = append(todo, r)
			}
		}
		if len(todo) == 0 {
			return nil
		}
		failed, err := s.run(ctxOfChild, todo)
		t.add(specs[spec].name, s.values)
		took = append(took, s.took...)
		if err == nil {
			_, err = s.tell("stop", command{Do: "stop"})
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // interrupted; not a failure of the peer
		}
		t.note(specs[spec].name, failed, err)
		if _, isEnded := errors.AsType[ended](err); isEnded {
			return nil
		}
		return fmt.Errorf("row %s: %w", failed, err)
	}
	err = measured(false, func(s *session) []row { return s.rows(round) })
	if round > 0 || ctx.Err() != nil {
		return took, err
	}
	for _, r := range []struct {
		name  string
		paged bool
	}{{"LIST", false}, {"PAGED", true}} {
		if wanted(r.name) {
			err = errors.Join(err, measured(true, func(s *session) []row {
				return []row{
					{r.name, func(context.Context) error { return s.sync(r.name, round, command{List: true, Paged: r.paged}) }},
				}
			}))
		}
	}
	return took, err
}
