// Command domains is an operator of "domains", each with an admin server and some managed servers. It shows package
// flow: each domain with work to do has a fiber, which is parked without a goroutine while it waits. The command runs
// a scenario on the cluster of KUBECONFIG: 300 domains start, roll, are preempted and survive a restart of the
// operator.
//
//	make up                     # in one terminal: a control plane
//	go run ./domains            # in another, in examples/, with KUBECONFIG set as make up says
//	fairlead flows --watch --url http://127.0.0.1:8092/debug/flows
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
)

type config struct {
	namespaces, each, servers int
	delay                     time.Duration
	listen, prefix            string
	keep, verbose             bool
}

func main() {
	var c config
	flag.IntVar(&c.namespaces, "namespaces", 30, "how many namespaces")
	flag.IntVar(&c.each, "domains", 10, "how many domains in each")
	flag.IntVar(&c.servers, "servers", 3, "how many managed servers in each of these")
	flag.DurationVar(&c.delay, "delay", 2*time.Second, "how long a pod takes to be ready, at most; half of it at least")
	flag.StringVar(&c.listen, "listen", "127.0.0.1:8092", "address of /debug/flows, /metrics, /healthz")
	flag.StringVar(&c.prefix, "prefix", "domains", "of the names of the namespaces")
	flag.BoolVar(&c.keep, "keep", false, "keep the domains and the operator at the end, until interrupted")
	flag.BoolVar(&c.verbose, "v", false, "log what the operator logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := fairlead.Config("")
	if err == nil {
		cfg.QPS = -1 // the server limits the rate itself
		err = run(ctx, cfg, c, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "domains:", err)
		os.Exit(1)
	}
}

// story is the state of one run.
type story struct {
	config
	cfg   *rest.Config
	out   io.Writer
	watch cache.Option // restricts the cache to the namespaces of the story
	a     *audience
	keys  []client.Key

	mu    sync.Mutex
	ended map[string][]flow.Info // finished fibers by key
}

// run plays the scenario.
func run(ctx context.Context, cfg *rest.Config, c config, out io.Writer) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	scenery, strike := context.WithCancel(context.WithoutCancel(ctx)) // outlives ctx, so that the cleanup still works
	var wg sync.WaitGroup
	defer wg.Wait()
	defer strike()
	s := &story{config: c, cfg: cfg, out: out, ended: map[string][]flow.Info{}}
	var names []string
	for i := range c.namespaces {
		names = append(names, namespaceName(c.prefix, i))
	}
	s.watch = cache.Namespaces(names...)
	if s.a, err = newAudience(cfg, s.watch); err != nil {
		return err
	}
	if err := install(ctx, s.a.rt.Client()); err != nil {
		return err
	}
	background := func(name string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(scenery); err != nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	background("audience", s.a.rt.Run)
	background("kubelet", newKubelet(cfg, c.delay, s.watch).rt.Run)
	if err := s.a.rt.WaitSynced(ctx); err != nil {
		return err
	}
	defer func() { // also after an interrupt or a failure
		bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer stop()
		err = errors.Join(err, s.a.remove(bounded, s.keys))
	}()
	return s.play(ctx)
}

func (s *story) play(ctx context.Context) error {
	stop, err := s.operator(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	began := time.Now()
	if s.keys, err = s.a.create(ctx, s.prefix, s.namespaces, s.each,
		DomainSpec{Servers: s.servers, Image: "server:1"}); err != nil {
		return err
	}
	all := len(s.keys)
	if err := s.a.awaitAvailable(ctx, s.keys, all); err != nil {
		return err
	}
	s.say("%d domains in %d namespaces are up after %v, %d pods", all, s.namespaces, since(began), all*(s.servers+1))
	s.trail(s.keys[0], "one of them")

	s.say("\nrolling restart of all, one server of each domain at a time")
	began = time.Now()
	if err := s.a.change(ctx, s.keys, func(d *DomainSpec) { d.RestartVersion = "2" }); err != nil {
		return err
	}
	if err := s.rolling(ctx, s.keys[0]); err != nil {
		return err
	}
	s.say("the image of %s changes meanwhile", s.keys[0])
	if err := s.a.change(ctx, s.keys[:1], func(d *DomainSpec) { d.Image = "server:2" }); err != nil {
		return err
	}
	if err := s.awaitEnd(ctx, s.keys[0], flow.Cancelled); err != nil {
		return err
	}
	s.trail(s.keys[0], "its fiber, preempted")
	if err := s.a.awaitAvailable(ctx, s.keys, all/4); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	saved, err := s.positions(ctx)
	if err != nil {
		return err
	}
	s.say("\nthe operator stops: %d domains are done, %d fibers were under way, saved at", s.a.available(s.keys),
		len(saved))
	s.steps(saved)
	s.mu.Lock()
	s.ended = map[string][]flow.Info{}
	s.mu.Unlock()
	again := time.Now()
	if stop, err = s.operator(ctx); err != nil {
		return err
	}
	if err := s.a.awaitAvailable(ctx, s.keys, all); err != nil {
		return err
	}
	s.say("\nanother one starts: all %d are done %v later, %v after the restart was asked for", all, since(again),
		since(began))
	s.resumed(saved)
	if s.keep {
		s.say("\neverything stays as it is until you interrupt")
		<-ctx.Done()
	}
	return stop()
}

// operator starts an operator and returns a function that stops it.
func (s *story) operator(ctx context.Context) (stop func() error, err error) {
	log := slog.New(slog.DiscardHandler)
	if s.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	o, err := newOperator(s.cfg, operatorOptions{
		watch: []cache.Option{s.watch}, listen: s.listen, log: log, onEnd: func(_ *Domain, r flow.Result) {
			s.mu.Lock()
			defer s.mu.Unlock()
			i := r.Handle.Info()
			i.Status = r.Status // the fiber still runs its callback and has no final status
			s.ended[i.Key] = append(s.ended[i.Key], i)
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	}), nil
}

func (s *story) say(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format+"\n", args...) }

// trail prints the steps of the last finished fiber of a domain.
func (s *story) trail(key client.Key, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := s.ended[fiberKey(key)]
	if len(infos) == 0 {
		return
	}
	i := infos[len(infos)-1]
	s.say("%s: %s %s %s", what, key, i.Flow, i.Status)
	for _, t := range i.Trail {
		s.say("    %v", t)
	}
}

func fiberKey(key client.Key) string { return reconcile.FiberKey("domains", key) }

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// rolling waits until a domain is in the middle of its restart.
func (s *story) rolling(ctx context.Context, key client.Key) error {
	return s.until(ctx, func(domains map[client.Key]*Domain) bool {
		d := domains[key]
		if d == nil {
			return false
		}
		p := d.Status.Flow
		return !atRest(d) && p.Step == "managed-servers"
	})
}

// positions returns the fiber positions in the status of the domains that are for their current spec.
func (s *story) positions(ctx context.Context) (map[client.Key]flow.Position, error) {
	saved := map[client.Key]flow.Position{}
	for d, err := range client.List[Domain](ctx, s.a.rt.Client(), client.Live()) {
		if err != nil {
			return nil, err
		}
		if !atRest(d) && d.Status.Flow.Generation == d.Generation && slices.Contains(s.keys, client.KeyOf(d)) {
			saved[client.KeyOf(d)] = *d.Status.Flow
		}
	}
	return saved, nil
}

func (s *story) steps(saved map[client.Key]flow.Position) {
	count := map[string]int{}
	for _, p := range saved {
		count[p.Flow+"/"+p.Step]++
	}
	var lines []string
	for step, n := range count {
		lines = append(lines, fmt.Sprintf("    %4d %s", n, step))
	}
	slices.Sort(lines)
	s.say("%s", strings.Join(lines, "\n"))
}

// resumed prints how many fibers have resumed at their saved position.
func (s *story) resumed(saved map[client.Key]flow.Position) {
	s.mu.Lock()
	n := 0
	var example client.Key
	for key, p := range saved {
		if infos := s.ended[fiberKey(key)]; len(infos) > 0 && infos[0].Trail[0].Step == p.Step {
			n++
			if p.Step == "managed-servers" {
				example = key
			}
		}
	}
	s.mu.Unlock()
	s.say("%d of the %d fibers went on at the step that was saved", n, len(saved))
	if example.Name != "" {
		s.trail(example, "one that did")
	}
}

// awaitEnd returns when the last finished fiber of a domain has the given status.
func (s *story) awaitEnd(ctx context.Context, key client.Key, status flow.Status) error {
	return s.until(ctx, func(map[client.Key]*Domain) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		infos := s.ended[fiberKey(key)]
		return len(infos) > 0 && infos[len(infos)-1].Status == status
	})
}
