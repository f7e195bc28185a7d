package controller

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

// NewCommand returns the command fairlead controller.
func NewCommand(s cli.Streams) *cobra.Command {
	var c cli.Connection
	var o Options
	var verbose bool
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the operations controller and its HTTP API",
		Long: `Controller runs Operations to their end: it calls their Webhooks, records every attempt in advance, and serves
the HTTP API, the console at /console/, /healthz, /readyz, /metrics and /debug/. It needs the custom resources:

	fairlead crds | kubectl apply --server-side -f -

Callers of the HTTP API authenticate with a bearer token of the cluster (--audience) and need permission for the same
verb on operations.fairlead.io. On addresses other than loopback, the API requires TLS (--tls-cert-file, --tls-key-file)
or --insecure-http.

Webhooks may not call loopback, private or link-local addresses, nor the address ranges of the cluster for
services and pods, unless --allow-target names them. They may never call the API server or a --deny-target. They may use
Secrets with the label fairlead.io/webhook-credentials=true, and service accounts for the audiences in their annotation
fairlead.io/webhook-audiences.

With several replicas, one works (--leader-elect), or all share the operations by namespace (--shards). After a graceful
stop the others take over within five seconds, after a crash within 24 seconds. A rolling update switches between the
two modes. fairlead shards shows the distribution. Every replica serves the HTTP API for all namespaces.

Traces are exported as configured by OpenTelemetry's environment variables, such as OTEL_EXPORTER_OTLP_ENDPOINT
(default: none).

On SIGTERM or Ctrl-C it starts no new calls, waits up to --drain for those in progress, records their results, and then
releases the Lease or its slots. Longer calls are aborted; the next replica repeats them with the same key. A second
signal ends it at once.`,
		Example: `  fairlead controller --insecure-no-auth                    # on your machine, HTTP API on loopback without authentication
  fairlead controller --leader-elect --listen :8443 --metrics-listen :8082 --audience fairlead \
    --tls-cert-file tls.crt --tls-key-file tls.key          # one of several replicas in a cluster
  fairlead controller --shards --listen :8443 --metrics-listen :8082 --audience fairlead \
    --tls-cert-file tls.crt --tls-key-file tls.key          # one of several replicas that share the operations
  fairlead controller -n team-a --allow-target 10.0.0.0/8   # one namespace, webhooks into a private network`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, namespace, err := c.Config()
			if err != nil {
				return err
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: level}))
			if o.system, err = placeSystem(o.system, o.namespaces, namespace); err != nil {
				return err
			}
			if len(o.namespaces) > 0 {
				namespace = o.namespaces[0]
			}
			return Run(cmd.Context(), config, namespace, o, log, nil)
		},
	}
	f := cmd.Flags()
	c.Flags(f)
	f.StringArrayVarP(&o.namespaces, "namespace", "n", nil, "`namespace` to serve; may be repeated (default: all)")
	f.StringVar(&o.system, "system-namespace", "",
		"`namespace` of the callback key and the Lease (default: the namespace served, "+
			"or with several or all, that of the pod or the context)")
	f.BoolVar(&o.leaderElect, "leader-elect", false,
		"work only while holding the Lease fairlead-controller; the HTTP API is always served")
	f.BoolVar(&verbose, "verbose", false, "log more")
	o.flags(f)
	return cmd
}
