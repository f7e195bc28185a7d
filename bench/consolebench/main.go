// Consolebench measures the console of the operations controller on a real control plane with many operations:
//
//	make -C .. build && go run ./consolebench -fairlead ../bin/fairlead
//
// It creates -operations Operations. Of these, -parked wait for a Webhook that does not exist, each with a parked
// fiber, and the others succeed at once. Then it starts `fairlead controller` as a separate process and prints
//
//   - the time of each page as a client on loopback sees it: median and 95th percentile of -rounds sequential
//     requests. The first request of the lists builds their index and is listed separately.
//   - the processor time of the controller while -pages pages are open for -for and receive updates: at rest, while
//     -changes operations per second are scheduled, and the same without pages.
//   - the memory of the controller before and after.
//
// It takes about ten minutes, most of them to create the operations. The table has no peer because no other program
// shows these operations. It needs Linux: memory and processor time are read from /proc.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/bench/internal/proc"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/install"
)

type options struct {
	fairlead                                   string
	operations, parked, rounds, pages, changes int
	open                                       time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.fairlead, "fairlead", "../bin/fairlead", "`file` of the program")
	flag.IntVar(&o.operations, "operations", 100_000, "how many there are")
	flag.IntVar(&o.parked, "parked", 10_000, "how many of them wait")
	flag.IntVar(&o.rounds, "rounds", 100, "requests for each page")
	flag.IntVar(&o.pages, "pages", 200, "pages that are open at a time")
	flag.IntVar(&o.changes, "changes", 10, "operations that are scheduled in a second, while pages are open")
	flag.DurationVar(&o.open, "for", 30*time.Second, "how long pages are open")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "consolebench:", err)
		os.Exit(1)
	}
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// bench is a control plane with operations and the controller.
type bench struct {
	options
	scheduler *operations.Scheduler
	pid       int
	url       string
	next      int
}

func measure(ctx context.Context, o options, out io.Writer) error {
	c, err := cluster.Start(ctx, cluster.Options{
		Progress: os.Stderr, EtcdFlags: []string{"--quota-backend-bytes", fmt.Sprint(int64(8) << 30)},
	})
	if err != nil {
		return err
	}
	defer c.Stop()
	calls, err := call.New(call.Options{Config: c.Config()})
	if err != nil {
		return err
	}
	defer calls.Close()
	if err := install.CRDs(ctx, calls); err != nil {
		return err
	}
	b := &bench{options: o}
	options := operations.Options{Config: c.Config(), Calls: calls, Namespace: "default"}
	if b.scheduler, err = operations.NewScheduler(options); err != nil {
		return err
	}
	defer b.scheduler.Close()
	end, err := b.start(ctx, c)
	if err != nil {
		return err
	}
	defer end()
	if err := b.fill(ctx); err != nil {
		return err
	}
	return b.report(ctx, out)
}

func (b *bench) start(ctx context.Context, c *cluster.Cluster) (end func(), err error) {
	cmd := exec.CommandContext(ctx, b.fairlead, "controller", "--kubeconfig", c.KubeconfigPath(), "--insecure-no-auth",
		"--listen", "127.0.0.1:0", "--namespace", "default")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the controller: %w", err)
	}
	b.pid = cmd.Process.Pid
	served := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			if _, at, ok := strings.Cut(s.Text(), "address="); ok && strings.Contains(s.Text(), "HTTP API is served") {
				served <- "http://" + strings.TrimSpace(at)
			}
		}
		close(served)
	})
	end = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the process may have ended
		reading.Wait()
		_ = cmd.Wait()
	}
	at, ok := <-served
	if !ok {
		end()
		return nil, errors.New("the controller has ended: run it by hand to see why")
	}
	b.url = at
	return end, nil
}

// schedule schedules operation i, which waits or succeeds.
func (b *bench) schedule(ctx context.Context, i int, waits bool) error {
	r := operations.Request{
		Type:          v1alpha1.OperationUpdate,
		Category:      fmt.Sprintf("category-%d", i%20),
		CorrelationID: fmt.Sprintf("correlation-%d", i),
		Resource:      operations.Resource{Type: "App", ID: fmt.Sprintf("app-%d", i)},
	}
	if waits {
		r.Webhooks = []string{"there-is-none"}
	}
	_, err := b.scheduler.Schedule(ctx, r)
	return err
}

// fill schedules the operations and waits until they have succeeded or wait.
func (b *bench) fill(ctx context.Context) error {
	const workers = 48
	began := time.Now()
	numbers := make(chan int)
	var working sync.WaitGroup
	failed := make(chan error, workers)
	for range workers {
		working.Go(func() {
			for i := range numbers {
				if err := b.schedule(ctx, i, i%(b.operations/max(b.parked, 1)) == 0); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	var err error
	for i := range b.operations {
		select {
		case numbers <- i:
		case err = <-failed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			break
		}
		if i > 0 && i%10_000 == 0 {
			progress("%d operations after %v", i, time.Since(began).Round(time.Second))
		}
	}
	close(numbers)
	working.Wait()
	if b.next = b.operations; err != nil {
		return err
	}
	const want = "/console/operations?status=IN_PROGRESS"
	for tick := time.Tick(time.Second); ; {
		body, _, err := b.get(ctx, want)
		if err != nil {
			return err
		}
		if strings.Contains(body, fmt.Sprintf("of %s,", grouped(b.parked))) {
			return nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// grouped formats a number as the pages do.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// get requests a page and measures the time.
func (b *bench) get(ctx context.Context, path string) (body string, took time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		return "", 0, err
	}
	began := time.Now()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", 0, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	took = time.Since(began)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return string(raw), took, err
}

// paths returns the paths of the measured pages.
func (b *bench) paths() []string {
	one := v1alpha1.OperationName("App", "app-0")
	return []string{
		"/console/overview", "/console/operations", "/console/operations?status=stuck",
		"/console/operations?q=correlation-77777", "/console/operations?q=no+such+text",
		"/console/operations?category=category-7&age=1h",
		fmt.Sprintf("/console/operations?from=%d", b.operations-100), "/console/operations/default/" + one,
		"/console/webhooks", "/console/sources", "/console/controllers", "/console/flows", "/console/flows/operation",
		"/console/why?kind=Operation&namespace=default&name=App/app-0",
		"/api/why?kind=Operation&namespace=default&name=App/app-0", "/metrics",
	}
}

func (b *bench) report(ctx context.Context, out io.Writer) error {
	before := proc.Resident(b.pid)
	fmt.Fprintf(out, "%s operations, %s of them parked\n\n| Page | Median | 95th percentile |\n|---|---|---|\n",
		grouped(b.operations), grouped(b.parked))
	for _, path := range b.paths() {
		var all []time.Duration
		for range b.rounds {
			_, took, err := b.get(ctx, path)
			if err != nil {
				return err
			}
			all = append(all, took)
		}
		slices.Sort(all)
		fmt.Fprintf(out, "| `%s` | %.1f ms | %.1f ms |\n", path, ms(all[len(all)/2]), ms(all[len(all)*95/100]))
	}
	fmt.Fprintf(out, "\n| Open pages | Operations a second | Processor time, of a core | "+
		"Pages brought up to date a second |\n|---|---|---|---|\n")
	for _, changes := range []int{0, b.changes} {
		for _, pages := range []int{0, b.pages} {
			used, updates, err := b.watch(ctx, pages, changes)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "| %d | %d | %.1f %% | %.1f |\n", pages, changes, 100*used, updates)
		}
	}
	fmt.Fprintf(out, "\nResident memory: %d MiB, and %d MiB at the end.\n", before>>20, proc.Resident(b.pid)>>20)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// watch keeps pages open and returns the fraction of a core that the controller has used.
func (b *bench) watch(ctx context.Context, pages, changes int) (used, updates float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.open+5*time.Second)
	defer cancel()
	var mu sync.Mutex
	seen := 0
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	paths := b.paths()[:13]
	for i := range pages {
		path := strings.Replace(paths[i%len(paths)], "/console/", "/console/live/", 1)
		reading.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
			if err != nil {
				return
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return
			}
			defer answer.Body.Close()
			s := bufio.NewScanner(answer.Body)
			for s.Buffer(nil, 4<<20); s.Scan(); {
				if strings.HasPrefix(s.Text(), "data:") {
					mu.Lock()
					seen++
					mu.Unlock()
				}
			}
		})
	}
	if err := sleep(ctx, 5*time.Second); err != nil { // until all pages are open
		return 0, 0, err
	}
	_, _, cpu, err := proc.Stat(b.pid)
	if err != nil {
		return 0, 0, err
	}
	mu.Lock()
	first := seen
	mu.Unlock()
	began := time.Now()
	for time.Since(began) < b.open-time.Second {
		if changes == 0 {
			err = sleep(ctx, time.Second)
		} else {
			for range changes {
				b.next++
				if err = b.schedule(ctx, b.next, false); err != nil {
					break
				}
			}
			if err == nil {
				err = sleep(ctx, time.Second-time.Since(began)%time.Second)
			}
		}
		if err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(began).Seconds()
	_, _, now, err := proc.Stat(b.pid)
	mu.Lock()
	defer mu.Unlock()
	return (now - cpu).Seconds() / took, float64(seen-first) / took, err
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
