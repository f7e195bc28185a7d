// Command flows measures rows F of docs/internals/benchmarks-flows.md. It compares fibers of package flow with
// goroutines and with the reconcile-and-requeue loop of controller-runtime, for the same waits.
//
//	go run ./flows             # in bench/
//
// Each measurement of memory runs in its own process, so that measurements do not affect each other.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fairlead-io/fairlead/bench/internal/rounds"
)

// sizes are the sizes of the measurements.
type sizes struct {
	rounds           int
	parked           int // F1: fibers
	await, goroutine int // F1: others
	steps            int // F2
	preemptions      int // F3
	saved            int // F4
	waits            int // CPU time of waits
	watched          time.Duration
}

var full = sizes{
	rounds: 3, parked: 1_000_000, await: 200_000, goroutine: 50_000, steps: 500_000, preemptions: 20_000,
	saved: 10_000, waits: 10_000, watched: 3 * time.Second,
}

var small = sizes{
	rounds: 1, parked: 20_000, await: 5_000, goroutine: 5_000, steps: 20_000, preemptions: 300,
	saved: 300, waits: 200, watched: 200 * time.Millisecond,
}

func main() {
	if child(os.Stdout) {
		return
	}
	s := full
	flag.IntVar(&s.rounds, "rounds", s.rounds, "how often each is measured")
	flag.Parse()
	if err := run(s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "flows:", err)
		os.Exit(1)
	}
}

// run measures and prints all rows.
func run(s sizes, out io.Writer) error {
	log.SetLogger(logr.Discard()) // silences controller-runtime
	rows := []struct {
		name    string
		measure func(sizes, io.Writer) ([]rounds.Result, error)
	}{{"F1", rowF1}, {"F2", rowF2}, {"F3", rowF3}, {"F4", rowF4}, {"waits", rowWaits}}
	all := map[string][]rounds.Result{}
	for _, row := range rows {
		begin := time.Now()
		results, err := row.measure(s, out)
		if err != nil {
			return fmt.Errorf("row %s: %w", row.name, err)
		}
		all[row.name] = results
		fmt.Fprintf(os.Stderr, "%s took %.0f s\n", row.name, time.Since(begin).Seconds())
	}
	printBars(out, all)
	return nil
}

func rowF1(s sizes, out io.Writer) ([]rounds.Result, error) {
	results, err := rounds.Run(s.rounds,
		inChild("fiber: delay, key at the gate, trail", "fiber", s.parked),
		inChild("fiber: await of a signal with a timeout", "await", s.await),
		inChild("goroutine, parked", "goroutine", s.goroutine),
		inChild("goroutine in select, timer and context", "select", s.goroutine),
		inChild("controller-runtime: RequeueAfter", "requeue", s.goroutine),
	)
	if err != nil {
		return nil, err
	}
	rounds.Print(out,
		fmt.Sprintf("F1: memory of what waits (%d fibers, %d with an await, %d of the others), beyond the user's data",
			s.parked, s.await, s.goroutine),
		[]string{"bytes each", "µs to park one"}, results)
	return results, nil
}

// Environment variables of a child process, which makes one measurement and prints the result.
const (
	childWhat = "FLOWS_MEASURE"
	childN    = "FLOWS_N"
)

// inChild returns a peer that is measured in a child process.
func inChild(name, what string, n int) rounds.Peer {
	return rounds.Peer{Name: name, Run: func() ([]float64, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childWhat+"="+what, childN+"="+strconv.Itoa(n))
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		var values []float64
		return values, json.Unmarshal(text, &values)
	}}
}

// child makes the measurement that the environment asks for. It reports false if this process is not a child.
func child(out io.Writer) bool {
	what := os.Getenv(childWhat)
	if what == "" {
		return false
	}
	n, err := strconv.Atoi(os.Getenv(childN))
	if err == nil {
		var values []float64
		if values, err = parked(what, n); err == nil {
			err = json.NewEncoder(out).Encode(values)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flows:", err)
		os.Exit(1)
	}
	return true
}
