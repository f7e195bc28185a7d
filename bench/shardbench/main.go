// Shardbench measures what it costs to share objects among replicas (fairlead.WithShards) on a real kube-apiserver:
// with the feature ShardedListAndWatch and without it, for several numbers of replicas.
//
//	go run ./shardbench                                    # 10,000 pods: a look
//	go run ./shardbench -objects 100000 -o sharding.md     # the sizes of docs/scaling.md
//	go run ./shardbench -objects 1000000 -kind configmaps -gates on -processes 4
//
// Each replica is a process of its own, this program once more, with a runtime, a group and an observer that looks at
// the header only. The objects are written into etcd before kube-apiserver starts, which takes seconds where creating
// them takes minutes; after that they are changed through the API server alone. For each feature and number of
// replicas:
//
//   - They begin together. They are in sync when each slot has one holder, and the observer of that one was given each
//     object of the slot, and nobody else's has it. The counts of each slot are compared with what was written.
//   - Resident memory is read after -settle, when free memory was given back to the system, as the other benchmarks do.
//   - -updates objects, each another one, are patched. What a replica receives is counted by its source, and what is
//     handed on by its observer; processor time is that of the processes, from the first patch until the last event.
//   - One replica is ended by SIGTERM, one by SIGKILL, and one is stopped by SIGSTOP until the others have its slots,
//     and goes on then; in between one is started again. Each time says how long it took until all was in sync once
//     more among those that live.
//   - Etcd says which objects have a newer version than before these moves: none should have one.
//
// It needs Linux: memory and processor time are read from /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/shard"
)

// options are flags.
type options struct {
	objects, namespaces, updates, rounds int
	kind                                 string // pods, configmaps
	takeovers                            bool   // measure members that go and come
	layout                               shard.Layout
	processes                            []int
	gates                                []bool
	settle, limit                        time.Duration
	out                                  string
}

func fromCommandLine() (options, error) {
	o := options{}
	flag.IntVar(&o.objects, "objects", 10_000, "how many there are")
	flag.IntVar(&o.namespaces, "namespaces", workloads, "in which they are; a divisor of 300 keeps workloads together")
	flag.IntVar(&o.updates, "updates", 5000, "how many of them are changed, each once")
	flag.IntVar(&o.rounds, "rounds", 1, "how often each is measured; medians are printed")
	flag.StringVar(&o.kind, "kind", "pods", "pods or configmaps (small ones)")
	flag.BoolVar(&o.takeovers, "takeovers", true, "measure members that go and come")
	by := flag.String("by", shard.UID.String(), "what objects are divided by: uid or namespace")
	processes := flag.String("processes", "1,2,4", "numbers of replicas, separated by commas")
	gates := flag.String("gates", "on,off", "of the API server's feature ShardedListAndWatch: on, off or both")
	flag.DurationVar(&o.settle, "settle", 3*time.Second, "before memory is read")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "how long one step may take")
	flag.StringVar(&o.out, "o", "", "`file` for the tables, besides standard output")
	flag.Parse()
	var err error
	if o.layout.By, err = shard.ParseBy(*by); err != nil {
		return o, err
	}
	for text := range strings.SplitSeq(*processes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > o.layout.Len() {
			return o, fmt.Errorf("cannot run %q replicas", text)
		}
		o.processes = append(o.processes, n)
	}
	for text := range strings.SplitSeq(*gates, ",") {
		if text != "on" && text != "off" {
			return o, fmt.Errorf("cannot turn a feature %q", text)
		}
		o.gates = append(o.gates, text == "on")
	}
	return o, o.check()
}

func (o *options) check() error {
	if o.objects < 1 || o.namespaces < 1 || o.rounds < 1 || o.updates < 1 {
		return errors.New("cannot measure without objects, namespaces, updates and rounds")
	}
	if !slices.Contains([]string{"pods", "configmaps"}, o.kind) {
		return fmt.Errorf("cannot make objects of kind %q: want pods or configmaps", o.kind)
	}
	o.updates = min(o.updates, o.objects)
	return nil
}

func main() {
	if isChild() {
		if err := runChild(); err != nil {
			fmt.Fprintln(os.Stderr, "shardbench, replica:", err)
			os.Exit(1)
		}
		return
	}
	o, err := fromCommandLine()
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = report(ctx, o)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "shardbench:", err)
		os.Exit(1)
	}
}

// report measures, and prints what was measured also when something failed later.
func report(ctx context.Context, o options) error {
	began := time.Now()
	progress := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	results, err := measure(ctx, o, progress)
	var text strings.Builder
	write(&text, o, results, began)
	fmt.Print(text.String())
	if o.out != "" {
		err = errors.Join(err, os.WriteFile(o.out, []byte(text.String()), 0o644))
	}
	return err
}
