package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options are set by the environment.
type options struct {
	objects, rounds, events, rate, blocked int
	span                                   time.Duration // of the rows with a rate
	peers                                  []string
	profile, out                           string
}

func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

func fromEnvironment() options {
	o := options{
		objects: number("BENCH_OBJECTS", 100_000), rounds: number("BENCH_ROUNDS", 3), events: number("BENCH_EVENTS", 30_000),
		rate: number("BENCH_RATE", 2000), blocked: number("BENCH_BLOCKED", 100_000), span: time.Duration(number("BENCH_SECONDS", 5)) * time.Second,
		profile: os.Getenv("BENCH_PROFILE"), out: os.Getenv("BENCH_OUT"),
	}
	if p := os.Getenv("BENCH_PEERS"); p != "" {
		o.peers = strings.Split(p, ";")
	}
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
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	t, err := compare(ctx, fromEnvironment(), func(s string) { fmt.Fprintln(os.Stderr, s) })
	if t != nil {
		t.write(os.Stdout)
	}
	return err
}

// compare runs all rounds.
func compare(ctx context.Context, o options, say func(string)) (*tables, error) {
	say(fmt.Sprintf("preparing %d objects of each kind", o.objects))
	f, err := newFixture(o.objects)
	if err != nil {
		return nil, err
	}
	defer f.server.Close()
	t := &tables{o: o, began: time.Now(), values: map[string]map[string][]float64{}}
	for round := range o.rounds {
		for i, spec := range specs {
			if len(o.peers) > 0 && !slices.Contains(o.peers, spec.name) {
				continue
			}
			begin := time.Now()
			values, err := measure(ctx, f, o, i, round)
			t.add(spec.name, values)
			t.took = time.Since(t.began)
			if saveErr := t.save(o.out); saveErr != nil {
				return t, saveErr
			}
			if err != nil {
				return t, fmt.Errorf("%s, round %d: %w", spec.name, round+1, err)
			}
			f.server.Compact(0)
			say(fmt.Sprintf("round %d of %d: %s took %.0f s", round+1, o.rounds, spec.name, time.Since(begin).Seconds()))
		}
	}
	return t, nil
}

// measure is one session with one peer.
func measure(ctx context.Context, f *fixture, o options, spec, round int) (map[string]float64, error) {
	name := specs[spec].name
	s, err := newSession(ctx, f, o, spec, false)
	if err != nil {
		return nil, err
	}
	defer s.close()
	ours, limit := strings.HasPrefix(name, "fairlead"), strings.HasPrefix(name, "bound")
	steps := []func() error{func() error { return s.sync("S1", round, false) }}
	if name != "controller-runtime unstructured" { // beyond the list it is what client-go dynamic is
		if !limit {
			steps = append(steps, func() error { _, err := s.tell("S6", command{Do: "reads"}); return err })
		}
		steps = append(steps,
			func() error { return s.throughput("S3", round, true) },
			func() error { return s.latency("S4", o.rate, o.span) })
		if ours {
			steps = append(steps, func() error { return s.throughput("S3header", round, false) })
		}
		if !limit {
			steps = append(steps,
				func() error { return s.stalls("S8", o.rate*5/2, o.span) })
			if round == 0 {
				steps = append(steps, func() error { return s.blocked("S7", o.blocked, min(1000, o.objects)) })
			}
			steps = append(steps, func() error { return s.relist("S5") })
		}
	}
	steps = append(steps, func() error { _, err := s.tell("stop", command{Do: "stop"}); return err })
	for _, step := range steps {
		if err := step(); err != nil {
			return s.values, err
		}
	}
	if limit || name == "client-go metadata" {
		return s.values, nil
	}
	// The list again, by LIST.
	l, err := newSession(ctx, f, o, spec, true)
	if err != nil {
		return s.values, err
	}
	defer l.close()
	if round == 0 {
		if err := l.sync("LIST", round, true); err != nil {
			return s.values, err
		}
		for k, v := range l.values {
			s.values[k] = v
		}
	}
	return s.values, nil
}
