// Command operations measures rows P1 to P4 of docs/internals/benchmarks-operations.md. It compares our executor, a
// controller on controller-runtime, and a bare writer that makes the same three writes. The two controllers run in
// their own processes, in interleaved rounds, on one real control plane with one receiver.
//
//	go run ./operations [-rounds 3] [-n 1000]
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/bench/internal/proc"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/install"
)

func main() {
	if len(os.Args) == 5 && os.Args[1] == "child" {
		if err := child(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	rounds := flag.Int("rounds", 3, "rounds")
	n := flag.Int("n", 1000, "operations of row P1")
	waiting := flag.Int("waiting", 2000, "operations of the rows about waiting for a poll")
	flood := flag.Int("flood", 2000, "operations of row P4")
	only := flag.String("only", "", "fairlead, peer or bare; all if empty")
	profile := flag.String("profile", "",
		"`file` for a CPU profile of our controller in row P1, file.waiting in row P3, and file.heap for its heap in row P3")
	flag.Parse()
	whom := []string{"fairlead", "peer", "bare"}
	if *only != "" {
		whom = []string{*only}
	}
	if err := measure(context.Background(), whom, *profile, *rounds, *n, *waiting, *flood); err != nil {
		fmt.Fprintln(os.Stderr, "operations:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, whom []string, profile string, rounds, n, waiting, flood int) error {
	c, err := cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer c.Stop()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the response does not depend on the body
		if r.URL.Path == "/async" {
			w.Header().Set("Location", "/async")
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	defer receiver.Close()
	b := &bench{cluster: c, receiver: receiver.URL, profile: profile, rows: map[string]map[string][]float64{}}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		pid, err := proc.Child(name)
		if err != nil {
			return err
		}
		b.servers = append(b.servers, pid)
	}
	for round := range rounds {
		for _, who := range whom {
			if err := b.round(ctx, fmt.Sprintf("%s-%d", who, round), who, n, waiting, flood); err != nil {
				return fmt.Errorf("%s: %w", who, err)
			}
		}
		b.print()
	}
	return nil
}

type bench struct {
	cluster  *cluster.Cluster
	receiver string
	servers  []int  // PIDs of kube-apiserver and etcd
	profile  string // file name; empty: no profile
	order    []string
	rows     map[string]map[string][]float64 // by row and controller
}

func (b *bench) add(row, who string, value float64) {
	if b.rows[row] == nil {
		b.rows[row] = map[string][]float64{}
		b.order = append(b.order, row)
	}
	b.rows[row][who] = append(b.rows[row][who], value)
	fmt.Fprintf(os.Stderr, "%-50s %-10s %10.2f\n", row, who, value)
}

func (b *bench) print() {
	fmt.Printf(
		"| row | fairlead median (min–max) | peer median (min–max) | bare writer | to peer | to bare |\n" +
			"|---|---|---|---|---|---|\n",
	)
	for _, row := range b.order {
		m := map[string]float64{}
		cell := func(who string) string {
			v := slices.Sorted(slices.Values(b.rows[row][who]))
			if len(v) == 0 {
				return "-"
			}
			m[who] = v[len(v)/2]
			return fmt.Sprintf("%.2f (%.2f–%.2f)", m[who], v[0], v[len(v)-1])
		}
		ratio := func(who string) string {
			if m[who] == 0 || m["fairlead"] == 0 {
				return "-"
			}
			return fmt.Sprintf("%.2f", m["fairlead"]/m[who])
		}
		ours, theirs, bound := cell("fairlead"), cell("peer"), cell("bare")
		fmt.Printf("| %s | %s | %s | %s | %s | %s |\n", row, ours, theirs, bound, ratio("peer"), ratio("bare"))
	}
}

// station is a namespace with a controller under test.
type station struct {
	ctx       context.Context
	scheduler *operations.Scheduler
	in        io.Writer
	out       *bufio.Scanner

	mu    sync.Mutex
	ended map[string]time.Time // by resource ID
	some  *sync.Cond
}

func (b *bench) round(ctx context.Context, namespace, who string, n, waiting, flood int) (err error) {
	config := b.cluster.Config()
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, err := clients.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		return err
	}
	defer calls.Close()
	if err := install.CRDs(ctx, calls); err != nil {
		return err
	}
	for name, mode := range map[string]v1alpha1.WebhookMode{"sync": v1alpha1.ModeSync, "async": v1alpha1.ModeAsync} {
		w := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		w.Spec.Mode, w.Spec.Request.URL, w.Spec.Poll.Interval.Duration = mode, b.receiver+"/"+name, time.Hour
		w.Default()
		if _, err := call.Do(ctx, calls, call.Request{
			Verb: call.VerbCreate, Resource: v1alpha1.WebhooksResource, Kind: "Webhook",
			Namespace: namespace, Name: name, Object: w,
		}, call.Policy{}); err != nil {
			return err
		}
	}
	// For the first second of a new kind the API server rejects lists, which would count for the first controller only.
	if _, err := call.Do(ctx, calls, call.Request{
		Verb: call.VerbList, Resource: v1alpha1.OperationsResource, Kind: "Operation",
		Namespace: namespace, Query: url.Values{"resourceVersion": {"0"}},
	}, call.Policy{}); err != nil {
		return err
	}
	scheduler, err := operations.NewScheduler(operations.Options{Config: config, Calls: calls, Namespace: namespace})
	if err != nil {
		return err
	}
	defer scheduler.Close()
	s := &station{ctx: ctx, scheduler: scheduler, ended: map[string]time.Time{}}
	s.some = sync.NewCond(&s.mu)
	if who == "bare" {
		return b.bare(s, calls, namespace, n)
	}

	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "child", who, b.cluster.KubeconfigPath(), namespace)
	cmd.Stderr = os.Stderr
	if s.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.out = bufio.NewScanner(out)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if !s.out.Scan() {
		return fmt.Errorf("the controller did not start")
	}
	b.add("ready after the start of the process, ms", who, ms(time.Since(began)))
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	st := store.New(store.Options{
		Resource: v1alpha1.OperationsResource, Kind: v1alpha1.GroupVersion.WithKind("Operation"),
		Namespaced: true,
	})
	src, err := source.New(source.Config{
		REST: config, Resource: v1alpha1.OperationsResource,
		Namespaces: []string{namespace},
	}, st.Sink)
	if err != nil {
		return err
	}
	watch.Go(func() { _ = src.Run(watching); st.Close() })
	watch.Go(func() { s.follow(watching, st) })
	<-st.Synced()
	return b.measure(s, who, n, waiting, flood)
}

// follow records when operations end, or begin to wait for their first poll.
func (s *station) follow(ctx context.Context, st *store.Store) {
	cursor := st.Subscribe(store.SubscribeOptions{Name: "bench"})
	defer cursor.Close()
	for {
		e, err := cursor.Next(ctx)
		if err != nil {
			return
		}
		if e.Type != store.Added && e.Type != store.Modified {
			continue
		}
		op, err := store.As[v1alpha1.Operation](e.Object)
		if err != nil || !op.Terminal() && !(len(op.Status.Webhooks) == 1 && op.Status.Webhooks[0].NextAttemptAt != nil) {
			continue
		}
		s.mu.Lock()
		if s.ended[op.Spec.ResourceID].IsZero() {
			s.ended[op.Spec.ResourceID] = time.Now()
		}
		s.mu.Unlock()
		s.some.Broadcast()
	}
}

func (s *station) schedule(id, tenant, hook string) error {
	_, err := s.create(id, tenant, hook)
	return err
}

func (s *station) create(id, tenant, hook string) (*v1alpha1.Operation, error) {
	return s.scheduler.Schedule(s.ctx, operations.Request{
		Type: operations.Delete, Category: "unregister", TenantID: tenant,
		Resource: operations.Resource{Type: "app", ID: id}, Webhooks: []string{hook},
		Object: map[string]any{"name": "shop", "id": id},
	})
}

// schedulers is the number of concurrent callers that schedule operations.
const schedulers = 32

// Rows that include the bare writer.
const (
	rowLatency    = "P1 latency p50 idle, ms"
	rowThroughput = "P1 operations per second"
)

func (s *station) scheduleAll(prefix string, n int, tenant, hook string) error {
	work := make(chan int)
	errs := make(chan error, schedulers)
	var callers sync.WaitGroup
	for range schedulers {
		callers.Go(func() {
			for i := range work {
				if err := s.schedule(fmt.Sprint(prefix, i), tenant, hook); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	callers.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// await waits until n operations have ended or wait for their first poll.
func (s *station) await(prefix string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		for s.ended[fmt.Sprint(prefix, i)].IsZero() {
			s.some.Wait()
		}
	}
}

func (s *station) stats() (cpu time.Duration, requests, memory, rss float64) {
	_, _ = fmt.Sscan(s.ask("stats"), &cpu, &requests, &memory, &rss)
	return cpu, requests, memory, rss
}

// ask sends a command to the controller under test and returns its answer, or "" on error.
func (s *station) ask(what string) string {
	_, _ = fmt.Fprintln(s.in, what) // a failed write leads to an empty answer
	if !s.out.Scan() {
		return ""
	}
	return s.out.Text()
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// served returns the processor time that kube-apiserver and etcd have used.
func (b *bench) served() (all time.Duration) {
	for _, pid := range b.servers {
		_, _, used, err := proc.Stat(pid)
		if err != nil {
			return 0
		}
		all += used
	}
	return all
}

// settle is the delay before the memory of waiting operations is measured.
const settle = 15 * time.Second

func (b *bench) measure(s *station, who string, n, waiting, flood int) error {
	if err := s.scheduleAll("warm", 100, "", "sync"); err != nil {
		return err
	}
	s.await("warm", 100)
	one := func(id string) (time.Duration, error) {
		began := time.Now()
		if err := s.schedule(id+"0", "single", "sync"); err != nil {
			return 0, err
		}
		s.await(id, 1)
		return s.ended[id+"0"].Sub(began), nil
	}
	var idle []time.Duration
	for i := range 60 {
		took, err := one(fmt.Sprint("idle", i, "x"))
		if err != nil {
			return err
		}
		idle = append(idle, took)
	}
	slices.Sort(idle)
	b.add(rowLatency, who, ms(idle[len(idle)/2]))

	ask := func(what, file string) {
		if who == "fairlead" && b.profile != "" {
			s.ask(what + " " + b.profile + file)
		}
	}
	cpu, requests, _, _ := s.stats()
	ask("profile", "")
	began, servers := time.Now(), b.served()
	if err := s.scheduleAll("load", n, "", "sync"); err != nil {
		return err
	}
	s.await("load", n)
	took, servers := time.Since(began), b.served()-servers
	ask("profiled", "")
	cpu2, requests2, _, _ := s.stats()
	b.add(rowThroughput, who, float64(n)/took.Seconds())
	b.add("P1 controller CPU per operation, ms", who, ms(cpu2-cpu)/float64(n))
	b.add("P1 API server and etcd CPU per operation, ms", who, ms(servers)/float64(n))
	b.add("P2 requests per operation, creation included", who, 1+(requests2-requests)/float64(n))

	cpu, requests, memory, rss := s.stats()
	ask("profile", ".waiting")
	began, servers = time.Now(), b.served()
	if err := s.scheduleAll("wait", waiting, "", "async"); err != nil {
		return err
	}
	s.await("wait", waiting)
	b.add(fmt.Sprintf("P3 time until %d operations wait, s", waiting), who, time.Since(began).Seconds())
	ask("profiled", "")
	<-time.After(settle) // both controllers keep recent operations in another form than idle ones
	cpu2, requests2, memory2, rss2 := s.stats()
	ask("heap", ".heap")
	b.add("P3 controller CPU per waiting operation, ms", who, ms(cpu2-cpu)/float64(waiting))
	b.add("P3 API server and etcd CPU per waiting operation, ms", who, ms(b.served()-servers)/float64(waiting))
	b.add("P3 requests per waiting operation, creation included", who, 1+(requests2-requests)/float64(waiting))
	b.add("P3 heap and stacks per waiting operation, bytes", who, (memory2-memory)/float64(waiting))
	b.add("P3 resident per waiting operation, bytes", who, math.Max(0, rss2-rss)/float64(waiting))

	if err := s.scheduleAll("flood", flood, "flood", "sync"); err != nil {
		return err
	}
	alone, err := one("alone")
	if err != nil {
		return err
	}
	b.add("P4 one operation during a flood, ms", who, ms(alone))
	s.await("flood", flood)
	return nil
}
