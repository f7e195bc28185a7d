package e2e_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// fleet has replicas that share the operations of several namespaces, under load.
type fleet struct {
	*modes
	spaces []*site // by namespace; the first one is the system namespace
	rnd    *rand.Rand
	cuts   int    // how often calls were interrupted, or may have been
	reason string // why end failed; printed again after the long logs

	load    sync.WaitGroup
	endLoad func()

	mu       sync.Mutex
	replicas []*process
	ever     []*process
	links    map[*process]*link // to the API server
	serving  []string           // addresses

	ids [][]string // of operations, by space; written by its scheduler until the load has ended
}

// newFleet creates namespaces in as many slots, and starts to schedule operations in all of them.
func newFleet(t *testing.T, longer time.Duration) *fleet {
	t.Helper()
	s := newSite(t, env.Config(t))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+longer)
	t.Cleanup(cancel)
	s.ctx = ctx
	f := &fleet{
		modes: newModes(s), spaces: []*site{s}, links: map[*process]*link{},
		rnd: rand.New(rand.NewPCG(rand.Uint64(), 0)),
	}
	f.front.Config.Handler = &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: f.any()}) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	const others = 5
	taken := map[int]bool{shard.Layout{}.SlotOf(s.namespace, ""): true}
	for len(f.spaces) <= others {
		random := make([]byte, 6)
		for i := range random {
			random[i] = byte(rand.IntN(256))
		}
		name := hex.EncodeToString(random) + "-shared"
		slot := (shard.Layout{}).SlotOf(name, "")
		if taken[slot] {
			continue
		}
		taken[slot] = true
		if _, err := kubernetes.NewForConfigOrDie(s.config).CoreV1().Namespaces().Create(s.ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		f.spaces = append(f.spaces, s.in(name))
	}
	ctx, f.endLoad = context.WithCancel(s.ctx)

	f.ids = make([][]string, len(f.spaces))
	for i, space := range f.spaces {
		if i > 0 {
			f.webhooks(space)
		}
		f.load.Go(func() { f.schedule(ctx, i, space) })
	}
	t.Cleanup(f.logs)
	t.Cleanup(f.load.Wait)
	t.Cleanup(f.endLoad)
	return f
}

// in returns the same site in another namespace.
func (s *site) in(namespace string) *site {
	s.t.Helper()
	other := &site{
		t: s.t, ctx: s.ctx, config: s.config, calls: s.calls, namespace: namespace, kubeconfig: s.kubeconfig,
		receiver: s.receiver,
	}
	var err error
	if other.scheduler, err = operations.NewScheduler(
		operations.Options{Config: s.config, Calls: s.calls, Namespace: namespace},
	); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(other.scheduler.Close)
	return other
}

// schedule schedules some operations a second until ctx ends. At most ahead of them are unfinished, so that a slow
// machine has no backlog when the test is over.
func (f *fleet) schedule(ctx context.Context, i int, space *site) {
	const ahead = 10
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	wait := func() bool {
		select {
		case <-tick.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for n := 0; ; n++ {
		for n >= ahead && !f.called(space, f.ids[i][n-ahead]) {
			if !wait() {
				return
			}
		}
		op, err := space.scheduler.Schedule(f.ctx, operations.Request{
			Type: operations.Delete, Resource: operations.Resource{Type: "app", ID: fmt.Sprint(n)},
			Webhooks: []string{"sync", "async", "callback"},
		})
		if err != nil {
			f.t.Errorf("cannot schedule: %v", err)
			return
		}
		f.ids[i] = append(f.ids[i], op.EffectiveID())
		if !wait() {
			return
		}
	}
}

// called reports whether the last webhook of an operation has been called.
func (f *fleet) called(space *site, id string) bool {
	f.modes.mu.Lock()
	defer f.modes.mu.Unlock()
	return f.made[space.namespace+"."+id+".callback"] > 0
}

// logs prints the logs of all replicas if the test has failed.
func (f *fleet) logs() {
	if !f.t.Failed() {
		return
	}
	for i, p := range f.ever {
		p.mu.Lock()
		f.t.Logf("replica %d, process %d:\n%s", i, p.Process.Pid, p.log)
		p.mu.Unlock()
	}
	if f.reason != "" {
		f.t.Log(f.reason)
	}
}

// any returns the address of one replica.
func (f *fleet) any() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.serving) == 0 {
		return "127.0.0.1:1"
	}
	return f.serving[rand.IntN(len(f.serving))]
}

// start starts n replicas at once.
func (f *fleet) start(n int, args ...string) (started []*process) {
	f.t.Helper()
	args = append([]string{
		"--insecure-no-auth", "--public-url", f.front.URL, "--system-namespace", f.namespace,
		"--drain", "1m", // a slow machine interrupts no call
	}, args...)
	for _, space := range f.spaces[1:] {
		args = append(args, "--namespace", space.namespace)
	}
	for range n {
		if skew := os.Getenv("FAIRLEAD_PROCESS_SKEW"); skew != "" && len(f.ever)%2 == 0 {
			f.env = []string{"TIME_SKEW=" + skew} // programs built by hack/skewed.sh obey it
		} else {
			f.env = nil
		}
		l, kubeconfig := newLink(f.t, f.kubeconfig)
		p := f.controller(kubeconfig, args...)
		started, f.ever = append(started, p), append(f.ever, p)
		f.mu.Lock()
		f.links[p] = l
		f.mu.Unlock()
	}
	for _, p := range started {
		select {
		case at := <-p.address:
			f.mu.Lock()
			f.replicas, f.serving = append(f.replicas, p), append(f.serving, at)
			f.mu.Unlock()
		case err := <-p.ended:
			f.t.Fatalf("%v: %s", err, p.log)
		}
	}
	return started
}

// remove removes a replica that is about to end.
func (f *fleet) remove(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.replicas, p)
	f.replicas, f.serving = slices.Delete(f.replicas, i, i+1), slices.Delete(f.serving, i, i+1)
}

// stop ends a replica gracefully.
func (f *fleet) stop(p *process) {
	f.t.Helper()
	f.remove(p)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		f.t.Fatal(err)
	}
	if err := p.end(f.ctx, f.t); err != nil || strings.Contains(p.log.String(), "panic") {
		f.t.Errorf("after SIGTERM: %v\n%s", err, p.log)
	}
}

func (f *fleet) kill(p *process) {
	f.t.Helper()
	f.cuts++
	f.remove(p)
	if err := p.Process.Kill(); err != nil {
		f.t.Fatal(err)
	}
	_ = p.end(f.ctx, f.t)
}

// pause stops a replica for a while.
func (f *fleet) pause(p *process, d time.Duration) {
	f.t.Helper()
	f.cuts++
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := p.Process.Signal(signal); err != nil {
			f.t.Fatal(err)
		}
		if signal == syscall.SIGSTOP {
			f.pass(d)
		}
	}
}

// partition separates a replica from the API server for a while.
func (f *fleet) partition(p *process, d time.Duration) {
	f.cuts++
	f.mu.Lock()
	l := f.links[p]
	f.mu.Unlock()
	l.cut()
	f.pass(d)
	l.heal()
}

// pass waits, under load.
func (f *fleet) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.ctx.Done():
	}
}

func (f *fleet) one() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replicas[f.rnd.IntN(len(f.replicas))]
}

// allLive fails if a replica has ended without a signal.
func (f *fleet) allLive() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.replicas {
		select {
		case err := <-p.ended:
			text := p.log.String()
			f.t.Fatalf("process %d has ended: %v\n%s", p.Process.Pid, err, text[max(0, len(text)-8000):])
		default:
		}
	}
}

// shared waits until so many members hold all slots, evenly, and no slot moves.
func (f *fleet) shared(members int) {
	f.t.Helper()
	var last *group.Report
	begun := time.Now()
	for tick := time.Tick(50 * time.Millisecond); ; {
		report, err := group.Read(f.ctx, f.config, f.namespace, groupDefault)
		if err == nil && len(report.Members) == members && len(report.Moving) == 0 {
			held, least := 0, report.Of
			for _, m := range report.Members {
				held, least = held+len(m.Slots), min(least, len(m.Slots))
				if !f.lives(m.Name) {
					held = 0
					break
				}
			}
			if held == report.Of && least >= report.Of/members {
				f.t.Logf("%d members share after %v", members, time.Since(begun).Round(time.Millisecond))
				return
			}
		}
		last = report
		f.allLive()
		select {
		case <-tick:
		case <-f.ctx.Done():
			f.t.Fatalf("%d members do not share the slots: %+v", members, last)
		}
	}
}

// lives reports whether a member is one of the replicas.
func (f *fleet) lives(member string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.replicas, func(p *process) bool {
		return strings.HasSuffix(member, fmt.Sprint("-", p.Process.Pid))
	})
}

// end ends the load and waits for all operations. A call is made once, and at most once more for each interruption of
// calls.
func (f *fleet) end() {
	f.t.Helper()
	f.endLoad()
	f.load.Wait()
	keys, again := 0, 0
	for i, space := range f.spaces {
		for n, id := range f.ids[i] {
			v, err := space.scheduler.Wait(f.ctx, operations.Resource{Type: "app", ID: fmt.Sprint(n)}, id, nil)
			if err != nil || v.Status != operations.Succeeded {
				f.modes.mu.Lock()
				f.reason = fmt.Sprintf("operation %s/%d: %+v (%v); callbacks not accepted: %q", space.namespace, n, v, err,
					f.failed)
				f.modes.mu.Unlock()
				f.t.Fatal(f.reason)
			}
			f.modes.mu.Lock()
			for _, webhook := range []string{"sync", "async", "callback"} {
				key := space.namespace + "." + id + "." + webhook
				made := f.made[key]
				keys, again = keys+1, again+max(0, made-1)
				if made < 1 || made > 1+f.cuts && made > 1+f.lost() {
					f.t.Errorf("the call %s was made %d times, with %d faults", key, made, f.cuts)
				}
			}
			f.modes.mu.Unlock()
		}
	}
	f.modes.mu.Lock()
	defer f.modes.mu.Unlock()
	if len(f.made) != keys {
		f.t.Errorf("%d calls were made, want %d", len(f.made), keys)
	}
	if len(f.failed) > 0 {
		f.t.Errorf("callbacks: %v", f.failed)
	}
	f.t.Logf("%d calls, %d of them repeated with the same key, %d faults that interrupt calls, %d lost Leases",
		keys,
		again, f.cuts, f.lost())
}

// lost returns how often a replica could not renew its Lease in time, as on a busy machine. Such a replica interrupts
// its calls itself.
func (f *fleet) lost() (n int) {
	for _, p := range f.ever {
		p.mu.Lock()
		n += strings.Count(p.log.String(), "msg=lost ")
		p.mu.Unlock()
	}
	return n
}
