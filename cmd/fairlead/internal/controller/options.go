package controller

import (
	"net/url"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// Options configures the operations controller and its HTTP API. The exported fields are those that another command
// sets.
type Options struct {
	Serve   ServeOptions
	Targets TargetOptions
	// Drain is how long a stopping controller waits for running calls.
	Drain time.Duration

	sharing     sharingOptions
	namespaces  []string // served; empty: all
	system      string   // the namespace of the callback key and the Lease; empty: the default namespace
	leaderElect bool
	egressProxy string
	crashDir    string // empty: no quarantine of Webhooks that crash the process
	workers     int
	maxCalls    int
	budget      executor.Budget
}

const (
	// defaultDrain is the default of --drain.
	defaultDrain = 8 * time.Second
	// StopMargin bounds the rest of a shutdown: writes, requests to the HTTP API, Events. The termination grace period
	// of the pod in deploy/ exceeds the sum of it and --drain.
	StopMargin = 15 * time.Second
)

func (o *Options) flags(f *pflag.FlagSet) {
	o.Serve.flags(f)
	o.sharing.flags(f)
	f.StringArrayVar(&o.Targets.Allow, "allow-target", nil,
		"loopback or private `CIDR or host` that webhooks may call; may be repeated")
	o.Targets.Flags(f)
	f.StringVar(&o.egressProxy, "egress-proxy", "", "`URL` of a proxy for all webhooks")
	f.IntVar(&o.workers, "workers", 0,
		"`number` of operations of one namespace that may write to the API server at the same time (default 16)")
	f.IntVar(&o.maxCalls, "max-calls", 0,
		"`number` of webhook calls in progress, half of them for one namespace (default 512)")
	f.IntVar(&o.budget.Writes, "namespace-writes", 0,
		"`writes` per second of one namespace to the API server; a write for a retry counts as five "+
			"(default 500; -1: no limit)")
	f.IntVar(&o.budget.WriteBytes, "namespace-write-bytes", 0,
		"`bytes` per second of the objects that one namespace writes (default 1048576; -1: no limit)")
	f.IntVar(&o.budget.TotalWrites, "writes", 0,
		"`writes` per second of all namespaces together that exhaust their limit "+
			"(default four times --namespace-writes; -1: no limit)")
	f.IntVar(&o.budget.TotalWriteBytes, "write-bytes", 0,
		"`bytes` per second of the objects that those write (default twice --namespace-write-bytes; -1: no limit)")
	f.IntVar(&o.budget.Calls, "namespace-calls", 0,
		"webhook `calls` per second of one namespace (default 500; -1: no limit)")
	f.StringVar(&o.crashDir, "crash-dir", "",
		"persistent `directory` that records which Webhooks crash the process, "+
			"to quarantine them (default: no quarantine)")
	f.DurationVar(&o.Drain, "drain", defaultDrain,
		"`time` that calls in progress have to finish when the controller stops")
}

// check validates the options that need no other information.
func (o *Options) check() error {
	if o.egressProxy != "" {
		if u, err := url.Parse(o.egressProxy); err != nil || u.Host == "" {
			return cli.Usagef("--egress-proxy %q is not a URL", o.egressProxy)
		}
	}
	if err := o.Targets.check(); err != nil {
		return err
	}
	if err := o.sharing.check(); err != nil {
		return err
	}
	if o.leaderElect && o.sharing.group != "" {
		return cli.Usagef("--leader-elect and --shards exclude each other")
	}
	if o.Drain < 0 {
		return cli.Usagef("--drain %v is negative", o.Drain)
	}
	return nil
}

// placeSystem decides the namespace of the callback key and the Lease. That is the namespace of --system-namespace if
// set. It is own (the namespace of the pod or the context) if all namespaces are served, or several without own.
// Otherwise it is the first served namespace. A reader of Secrets in that namespace can forge callbacks of all served
// namespaces.
func placeSystem(flag string, namespaces []string, own string) (string, error) {
	served := distinct(namespaces)
	switch {
	case flag != "":
		if wrong := validation.IsDNS1123Label(flag); len(wrong) > 0 {
			return "", cli.Usagef("--system-namespace %q is not the name of a namespace: %s", flag, wrong[0])
		}
		return flag, nil
	case len(served) == 0, len(served) > 1 && !slices.Contains(served, own):
		return own, nil
	}
	return namespaces[0], nil
}

// distinct returns the names sorted, without repetitions.
func distinct(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
