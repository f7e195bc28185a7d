// Command consistency measures rows C of docs/internals/benchmarks-consistency.md on a real kube-apiserver. The peers
// are our client, the client of controller-runtime on our stores (module controllerruntime), and the plain client of
// controller-runtime with and without its experimental EnableReadYourWritesConsistency.
//
//	go run ./consistency       # in bench/
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-io/fairlead/bench/internal/rounds"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster"
)

// sizes are the sizes of the measurements.
type sizes struct {
	rounds int
	delays []time.Duration
	writes int           // per peer and round, if the peer does not wait
	budget time.Duration // time limit for peers that wait; they make at least ten writes
	runs   int           // C2: objects per peer and round
	gets   int           // C3: number of gets
}

var full = sizes{
	rounds: 3, delays: []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond},
	writes: 3400, budget: 2 * time.Second, runs: 400, gets: 2_000_000,
}

var small = sizes{
	rounds: 3, delays: []time.Duration{0, 20 * time.Millisecond}, writes: 30,
	budget: 300 * time.Millisecond, runs: 20, gets: 20_000,
}

func main() {
	s := full
	flag.IntVar(&s.rounds, "rounds", s.rounds, "how often each is measured")
	flag.IntVar(&s.writes, "writes", s.writes, "C1: writes of each peer in each round")
	flag.IntVar(&s.runs, "runs", s.runs, "C2: objects of each peer in each round")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	c, err := cluster.Start(context.Background(), cluster.Options{Progress: os.Stderr})
	if err == nil {
		err = run(c.Config(), "consistency", s, os.Stdout)
		c.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "consistency:", err)
		os.Exit(1)
	}
}

// run measures and prints all rows.
func run(cfg *rest.Config, namespace string, s sizes, out io.Writer) error {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	defer clients.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
	ctx := context.Background()
	for i := range s.delays {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", namespace, i)}}
		if _, err := clients.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := rowC1(ctx, cfg, ns.Name, s.delays[i], s, out); err != nil {
			return err
		}
	}
	if err := rowC2(ctx, cfg, namespace+"-own", s, out); err != nil {
		return err
	}
	return rowC3(s, out)
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return m
}

// rowC1 measures an update followed by a read through the cache.
func rowC1(ctx context.Context, cfg *rest.Config, namespace string, delay time.Duration, s sizes, out io.Writer) error {
	cfg, stop, err := delayed(cfg, delay)
	if err != nil {
		return err
	}
	defer stop()
	var peers []rounds.Peer
	for _, p := range []struct {
		name string
		id   string
		make func() (*peer, error)
	}{
		{"Fairlead", "ours", func() (*peer, error) { return fairleadPeer(cfg, namespace) }},
		{"controller-runtime on our stores", "adapter", func() (*peer, error) { return adapterPeer(cfg, namespace) }},
		{"controller-runtime", "plain", func() (*peer, error) { return controllerRuntimePeer(cfg, namespace, false) }},
		{"controller-runtime, EnableReadYourWritesConsistency", "ryw", func() (*peer, error) {
			return controllerRuntimePeer(cfg, namespace, true)
		}},
	} {
		made, err := p.make()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer made.stop()
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.id},
			Data:       map[string]string{"n": "0"},
		}
		if err := made.create(ctx, cm); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		peers = append(peers, rounds.Peer{Name: p.name, Run: func() ([]float64, error) {
			return updateAndRead(ctx, made, cm, s)
		}})
	}
	results, err := rounds.Run(s.rounds, peers...)
	if err != nil {
		return err
	}
	rounds.Print(out, fmt.Sprintf("C1: update, then read through the cache; the watch is late by %v; real kube-apiserver",
		delay),
		[]string{"stale reads, %", "µs of a read, p50", "p99", "updates and reads per s", "of them in a round"}, results)
	return nil
}

// updateAndRead updates a ConfigMap repeatedly and reads it through the cache after each update.
func updateAndRead(ctx context.Context, p *peer, cm *corev1.ConfigMap, s sizes) ([]float64, error) {
	key := client.KeyOf(cm)
	if err := caughtUp(ctx, p, cm); err != nil {
		return nil, err
	}
	stale, began := 0, time.Now()
	took := make([]time.Duration, 0, s.writes)
	waited := time.Duration(0)
	for i := 0; i < s.writes && (i < 10 || waited < s.budget); i++ {
		cm.Data["n"] = fmt.Sprint(time.Now().UnixNano())
		if err := p.update(ctx, cm); err != nil {
			return nil, err
		}
		start := time.Now()
		version, err := p.read(ctx, key)
		if err != nil {
			return nil, err
		}
		d := time.Since(start)
		took, waited = append(took, d), waited+d
		order, err := resourceversion.CompareResourceVersion(version, cm.ResourceVersion)
		if err != nil {
			return nil, err
		}
		if order < 0 {
			stale++
		}
	}
	n := float64(len(took))
	rate := n / time.Since(began).Seconds()
	return []float64{
		100 * float64(stale) / n, micros(rounds.Quantile(took, 0.5)), micros(rounds.Quantile(took, 0.99)),
		rate, n,
	}, nil
}

// caughtUp waits until the cache has the version of an object, so that a round starts at rest.
func caughtUp(ctx context.Context, p *peer, cm *corev1.ConfigMap) error {
	deadline := time.After(time.Minute)
	for {
		version, err := p.read(ctx, client.KeyOf(cm))
		if err == nil && version == cm.ResourceVersion {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			return fmt.Errorf("the cache does not show %s: %w", cm.Name, err)
		}
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
