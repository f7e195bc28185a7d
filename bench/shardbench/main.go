// Shardbench measures the cost of sharing objects among replicas (fairlead.WithShards) on a real kube-apiserver, with
// and without the feature ShardedListAndWatch, for several numbers of replicas.
//
//	go run ./shardbench                                    # 10,000 pods, for a first look
//	go run ./shardbench -objects 100000 -o sharding.md     # the sizes of docs/scaling.md
//	go run ./shardbench -objects 1000000 -kind configmaps -gates on -processes 4
//
// Each replica is a child process with a runtime, a group and an observer that reads only the header of objects. The
// objects are written to etcd before kube-apiserver starts, which takes seconds instead of minutes. After that they
// are changed only through the API server. For each feature and number of replicas:
//
//   - All replicas start together. They are in sync when each slot has one holder, the holder's observer has each
//     object of the slot, and no other observer has it. The counts of each slot are compared with the written
//     objects.
//   - With -balance and -by namespace, the boundaries of the slots follow the objects. The benchmark waits until they
//     have not changed for ten seconds, and states the largest share.
//   - Resident memory is read after -settle, when free memory has been returned to the system, as in the other
//     benchmarks.
//   - -updates distinct objects are patched. The source of a replica counts the received objects, and its observer
//     the delivered ones. Processor time is that of the processes from the first patch until the last event.
//   - One replica is ended by SIGTERM, and one by SIGKILL. A third is stopped by SIGSTOP and continued when the others
//     have its slots. In between, replacements are started. Each time the benchmark measures the time until the live
//     replicas are in sync again.
//   - Etcd reports the objects that were written during these moves. There should be none.
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

// options are the command-line flags.
type options struct {
	objects, updates, rounds int
	namespaces               namespaces
	kind                     string // pods or configmaps
	takeovers                bool   // measure members that leave and join
	balance                  bool   // wait until the boundaries of the slots follow the objects
	layout                   shard.Layout
	processes                []int
	gates                    []bool
	settle, limit            time.Duration
	out                      string
}

func fromCommandLine() (options, error) {
	o := options{}
	flag.IntVar(&o.objects, "objects", 10_000, "how many there are")
	flag.IntVar(&o.namespaces.Count, "namespaces", workloads,
		"in which they are; a divisor of 300 keeps workloads together")
	flag.StringVar(&o.namespaces.Names, "names", "customer-%04d-prod", "`format` of the names of namespaces")
	flag.BoolVar(&o.balance, "balance", false, "wait until the boundaries of the slots follow the objects")
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
	if o.objects < 1 || o.namespaces.Count < 1 || o.rounds < 1 || o.updates < 1 {
		return errors.New("cannot measure without objects, namespaces, updates and rounds")
	}
	if a, b := o.namespaces.of(0), o.namespaces.of(o.namespaces.Count-1); o.namespaces.Count > 1 && a == b ||
		strings.Contains(a, "%") {
		return fmt.Errorf("cannot name namespaces by %q: want a format such as team-%%d", o.namespaces.Names)
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

// report measures and prints the results. After an error it prints the results so far.
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
