package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// child runs one controller. It reads commands from standard input and answers on standard output:
//
//	stats         prints processor time in ns, requests for operations except watches, memory in use after a
//	              garbage collection, and resident memory
//	profile FILE  starts a CPU profile
//	profiled      ends it
//	heap FILE     writes a heap profile
func child(who, kubeconfig, namespace string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	var requests atomic.Int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !strings.Contains(r.URL.RawQuery, "watch=") && !strings.Contains(r.URL.Path, "/events") &&
				strings.Contains(r.URL.Path, "/operations") {
				requests.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	ready := sync.OnceFunc(func() { fmt.Println("ready") })
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			switch what, file, _ := strings.Cut(lines.Text(), " "); what {
			case "profile":
				fmt.Println(startProfile(file))
			case "profiled":
				pprof.StopCPUProfile()
				fmt.Println("done")
			case "heap":
				fmt.Println(writeHeap(file))
			default:
				stats(&requests)
			}
		}
		stop()
	}()
	if who == "peer" {
		return runPeer(ctx, config, namespace, ready)
	}
	return runOurs(ctx, config, namespace, ready)
}

// startProfile starts a CPU profile. The file stays open until the process ends, because the end of the profile
// writes it.
func startProfile(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

func writeHeap(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}

func stats(requests *atomic.Int64) {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail
	cpu := usage.Utime.Nano() + usage.Stime.Nano()
	debug.FreeOSMemory() // collects garbage and returns free memory to the system
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Println(cpu, requests.Load(), m.HeapAlloc+m.StackInuse, rss())
}

// rss returns the resident memory in bytes.
func rss() (pages int64) {
	raw, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(raw), new(int64), &pages)
	}
	if err != nil {
		return -1
	}
	return pages * int64(os.Getpagesize())
}

func runOurs(ctx context.Context, config *rest.Config, namespace string, ready func()) error {
	types := k8sruntime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(types), corev1.AddToScheme(types)); err != nil {
		return err
	}
	rt := fairlead.New(config, fairlead.WithScheme(types), fairlead.WithHotBytes(1<<20)) // same options as cmd/fairlead
	in := source.Namespaces(namespace)
	operations, err := rt.Cache().Acquire(v1alpha1.GroupVersion.WithKind("Operation"), in)
	if err != nil {
		return err
	}
	webhooks, err := rt.Cache().Acquire(v1alpha1.GroupVersion.WithKind("Webhook"), in)
	if err != nil {
		return err
	}
	secrets, err := rt.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("Secret"), in)
	if err != nil {
		return err
	}
	e, err := executor.New(executor.Options{
		Calls: rt.Calls(), Operations: operations.Store, Webhooks: webhooks.Store, Secrets: secrets.Store,
		AllowTargets: []string{"127.0.0.1"},
	})
	if err != nil {
		return err
	}
	rt.Add("executor", e.Run)
	rt.Add("ready", func(ctx context.Context) error {
		select {
		case <-operations.Store.Synced():
			ready()
		case <-ctx.Done():
		}
		return nil
	})
	return rt.Run(ctx)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
