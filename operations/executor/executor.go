package executor

import (
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/shard"
)

// Options configure an Executor. Calls, Operations, Webhooks and Secrets are required.
type Options struct {
	// Calls makes the requests to the API server.
	Calls *call.Client
	// Policy is the policy of those requests. Default: that of package call.
	Policy call.Policy
	// Operations, Webhooks and Secrets are the stores of the namespaces that the Executor serves.
	Operations, Webhooks, Secrets *store.Store
	// ServiceAccounts is the store of the service accounts of these namespaces. If it is nil, Webhooks get no service
	// account tokens, unless AnyCredentials is set.
	ServiceAccounts *store.Store
	// AnyCredentials lets Webhooks use all Secrets and service accounts of their namespace. Default: Webhooks may use
	// Secrets with the label v1alpha1.LabelWebhookCredentials, and service accounts for the audiences of
	// v1alpha1.AnnotationWebhookAudiences. Operations that need other credentials wait.
	AnyCredentials bool
	// AllowTargets are CIDRs and hosts that webhooks may call although they are loopback, private or otherwise denied.
	AllowTargets []string
	// Targets are further addresses that webhooks may not call, and the cluster's own address ranges.
	Targets Targets
	// EgressProxy is the proxy for calls of webhooks. Default: no proxy, whatever the environment says.
	EgressProxy *url.URL
	// PublicURL is the base of callback URLs. Default: there are no callback URLs, and calls of AsyncCallback webhooks
	// fail as Invalid.
	PublicURL string
	// CallbackKey signs callback tokens. Required with PublicURL.
	CallbackKey []byte
	// Workers is the number of operations of one namespace that may write to the API server at once. Other namespaces
	// share a quarter more workers. Default: 16, so that requests wait in the fair queue here and not in the API
	// server.
	Workers int
	// MaxCalls bounds the calls under way to all receivers together. A namespace gets at most half of them while
	// another namespace may need some. One of several tenants of a namespace gets at most three quarters of that half.
	// Default: 512.
	MaxCalls int
	// Fence returns an error when this process may no longer act, since another process may have taken over. It is
	// usually the fence of the lease under which this Executor runs. The Executor calls it just before each request to
	// receivers, to token endpoints and, except for callbacks, to the API server. Fence must be quick and safe for
	// concurrent use. Default: no fence.
	Fence func() error
	// Shards limits this Executor to the operations of some slots. The Executor is a participant of a group, which
	// calls Gain and Lose. It checks the fence of each slot after Fence. The layout must be by namespace.
	//
	// Operations may be a store of these slots only. Such a store must gain them before the Executor, and lose them
	// after it. The other stores hold all namespaces. If Shards has a method Why(namespace string, uid types.UID)
	// []why.Cause, as group.Group has, it explains where other namespaces are served. Default: the Executor works on
	// all operations.
	Shards shard.Membership
	// Witness knows which Webhooks have crashed the process, so that they can be quarantined. Default: no Webhook is
	// quarantined.
	Witness Witness
	// Drain is how long a termination of the process waits for calls under way. The log names one Webhook whose
	// requestTimeout is longer, since a termination cuts off such calls. Default: none is named.
	Drain time.Duration
	// Budget bounds the use of each namespace over time.
	Budget Budget
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Logger gets one line per decision. Default: the logger of the fairlead runtime that runs Run, else none.
	Logger *slog.Logger
	// Recorder gets Kubernetes Events. Default: none.
	Recorder Recorder
	// Registerer gets the metrics. Default: none.
	Registerer prometheus.Registerer
	// TracerProvider makes the spans of operations and of webhook calls. Calls makes the spans of requests to the API
	// server. Default: no spans, and receivers get the span in which the operation was scheduled.
	TracerProvider trace.TracerProvider
}

// Targets limit the addresses that webhooks may call. The functions are called at each connection and must not block;
// a nil function returns no addresses. Earlier fields take precedence over later ones.
type Targets struct {
	// Never are the addresses and ports of the API server. NeverHosts are its names with ports
	// ("api.example.com:6443"). No other option allows them.
	Never      func() []netip.AddrPort
	NeverHosts []string
	// Deny are CIDRs and hosts that are denied even if AllowTargets names them.
	Deny []string
	// Inside are the ranges of the services and pods of the cluster. They are denied unless AllowTargets names them,
	// even if they look public.
	Inside func() []netip.Prefix
}

// Executor runs Operations until they end. At most one Executor may run for a namespace at a time: use leader
// election, Options.Fence and Options.Shards. A second one causes no second outcome, but repeats calls with the same
// keys.
type Executor struct {
	own         *ownership
	fresh       *freshness
	tenancy     *tenancy
	intake      *intake
	hookWatcher *hookWatcher
	runs        *runs
	lines       *lines
	locks       *locks
	calls       *calls
	drain       *drain
	quarantine  *quarantine
	status      *hookStatus
	attempts    *attempts
	stuck       *tally
	changes     *webhookChanges
	secrets     *secrets
	releases    *releases
	callbacks   *Callbacks
	metrics     *metrics
	spans       spans
	explainer   *explainer

	anyone    *client.Client // for requests that every replica may make
	store     *store.Store
	hookStore *store.Store
	hooks     *compiled.Cache
	webhooks  *webhook.Client
	engine    *flow.Engine
	budget    *fair.Budget // of status writes
	log       *slog.Logger
	slot      inherit.Slot // takes the logger of the runtime, for log
	now       func() time.Time

	stopped chan struct{} // closed when Run has returned
}
