// Command allocator is a controller that reserves a cloud address exactly once for each Gateway. It runs a scenario
// on the cluster of KUBECONFIG: gateways are created and deleted while the operator is killed at random points and
// the cloud loses responses. At the end the cloud must hold one address for each gateway.
//
//	make up                       # in one terminal: a control plane
//	go run ./allocator            # in another, in examples/, with KUBECONFIG set as make up says
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/examples/internal/mortal"
)

type config struct {
	gateways, crashes int
	lose              float64
	seed              uint64
	namespace         string
}

func main() {
	c := config{seed: rand.Uint64()}
	flag.IntVar(&c.gateways, "gateways", 20, "how many gateways")
	flag.IntVar(&c.crashes, "crashes", 12, "how often the operator is killed while they come, and again while they go")
	flag.Float64Var(&c.lose, "lose", 0.25, "the part of the cloud's answers that are lost")
	flag.Uint64Var(&c.seed, "seed", c.seed, "of the random points")
	flag.StringVar(&c.namespace, "namespace", "allocator", "namespace of the gateways")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := fairlead.Config("")
	if err == nil {
		cfg.QPS = -1
		err = run(ctx, cfg, c, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "allocator:", err)
		os.Exit(1)
	}
}

// story is the state of one run.
type story struct {
	config
	cfg   *rest.Config
	out   io.Writer
	rnd   *rand.Rand
	cloud *cloud
	url   string
	c     *client.Client // of the users; it reads from the server
}

// run plays the scenario. It returns an error if the cloud's reservations do not match the gateways.
func run(ctx context.Context, cfg *rest.Config, c config, out io.Writer) error {
	s := &story{config: c, cfg: cfg, out: out, rnd: rand.New(rand.NewPCG(c.seed, 0)), cloud: newCloud(c.seed, c.lose)}
	s.say("seed %d", c.seed)
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	if s.c, err = client.New(client.Options{Config: cfg, Scheme: scheme}); err != nil {
		return err
	}
	defer s.c.Close()
	if err := install(ctx, s.c); err != nil {
		return fmt.Errorf("cannot install: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.url = "http://" + listener.Addr().String()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- fairlead.Serve(serving, listener, s.cloud.handler()) }()
	err = s.play(ctx)
	stop()
	return errors.Join(err, <-served)
}

func (s *story) play(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := s.c.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for i := range s.gateways {
		if err := s.c.Create(ctx, s.gateway(i)); err != nil {
			return err
		}
	}
	if err := s.operate(ctx, s.allHaveAddresses); err != nil {
		return err
	}
	if err := s.checkBooks(ctx); err != nil {
		return err
	}
	s.say(
		"\n%d gateways, %d addresses at the cloud: %d requests to reserve, %d of them again with the same key, %d answers "+
			"lost\n",
		s.gateways, len(s.cloud.reserved()), s.cloud.asked, s.cloud.again, s.cloud.lost,
	)
	for i := range s.gateways {
		if err := s.c.Delete(ctx, s.gateway(i)); err != nil {
			return err
		}
	}
	if err := s.operate(ctx, s.allAreGone); err != nil {
		return err
	}
	if left := s.cloud.reserved(); len(left) > 0 {
		return fmt.Errorf("the gateways are gone, and the cloud still has %v", left)
	}
	s.say("\nall gateways are deleted, nothing is left at the cloud")
	return nil
}

func (s *story) gateway(i int) *Gateway {
	return &Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("gateway-%02d", i)}}
}

// operate runs operators until done returns true. It kills all of them except the last at a random request, either
// before the request is sent or after its response.
func (s *story) operate(ctx context.Context, done func(context.Context) (bool, error)) error {
	for n := range s.crashes + 1 {
		at := int64(-1)
		if n < s.crashes {
			at = 8 + s.rnd.Int64N(int64(4*s.gateways))
		}
		finished, err := s.life(ctx, n+1, at, s.rnd.IntN(2) == 0, done)
		if err != nil || finished {
			return err
		}
	}
	return errors.New("the last operator was not killed, and is not done")
}

// life runs one operator and kills it at the at-th request. finished reports whether done returned true before that.
func (s *story) life(
	ctx context.Context, n int, at int64, after bool, done func(context.Context) (bool, error),
) (finished bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := mortal.New(at, after, func(r *http.Request) {
		s.say("operator %2d is killed %s %s %s", n, map[bool]string{false: "before", true: "after"}[after], r.Method,
			r.URL.Path)
		cancel()
	})
	cfg := rest.CopyConfig(s.cfg)
	cfg.Wrap(m.Wrap)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	rt, err := newOperator(cfg, &cloudClient{s.url, &http.Client{Transport: m.Wrap(transport), Timeout: 5 * time.Second}},
		s.namespace, fairlead.WithDrain(time.Millisecond)) // a killed process does not drain
	if err != nil {
		return false, err
	}
	running := make(chan error, 1)
	go func() { running <- rt.Run(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-running: // the operator was killed or failed to start
			if m.Dead() {
				return false, nil
			}
			return false, errors.Join(err, context.Cause(ctx))
		case <-tick.C:
		}
		ok, err := done(ctx)
		if (ok || err != nil) && !m.Dead() {
			cancel()
			return ok, errors.Join(err, <-running)
		}
	}
}

func (s *story) list(ctx context.Context) ([]*Gateway, error) {
	var all []*Gateway
	for g, err := range client.List[Gateway](ctx, s.c, client.InNamespace(s.namespace)) {
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

func (s *story) allHaveAddresses(ctx context.Context) (bool, error) {
	all, err := s.list(ctx)
	return !slices.ContainsFunc(all, func(g *Gateway) bool { return g.Status.Address == "" }), err
}

func (s *story) allAreGone(ctx context.Context) (bool, error) {
	all, err := s.list(ctx)
	return len(all) == 0, err
}

// checkBooks compares the cloud's reservations with the gateways.
func (s *story) checkBooks(ctx context.Context) error {
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	var have []string
	for _, g := range all {
		have = append(have, g.Status.Address)
	}
	slices.Sort(have)
	if books := s.cloud.reserved(); !slices.Equal(have, books) {
		return fmt.Errorf("the gateways have %v, the cloud has %v", have, books)
	}
	if len(slices.Compact(have)) != s.gateways {
		return fmt.Errorf("%d gateways, %d addresses", s.gateways, len(have))
	}
	return nil
}

func (s *story) say(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format+"\n", args...) }
