package executor

import (
	"log/slog"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/share"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/shard"
)

// Options configure an Executor. Calls, Operations, Webhooks and Secrets are required.
type Options struct {
	// Calls makes the requests to the API server.
	Calls *call.Client
	// Policy of those requests. Default: that of package call.
	Policy call.Policy
	// Operations, Webhooks and Secrets are the stores of the namespaces that are served.
	Operations, Webhooks, Secrets *store.Store
	// ServiceAccounts is the store of those of the namespaces that are served. Nil: tokens are made of none, unless
	// AnyCredentials.
	ServiceAccounts *store.Store
	// AnyCredentials lets Webhooks use all Secrets and service accounts of their namespace. Default: Secrets with the
	// label v1alpha1.LabelWebhookCredentials, and service accounts for the audiences of
	// v1alpha1.AnnotationWebhookAudiences; operations wait for others.
	AnyCredentials bool
	// AllowTargets are CIDRs and hosts that webhooks may be sent to although they are loopback, private or the like.
	AllowTargets []string
	// Targets are those that webhooks may not be sent to besides, and what is known of the cluster's own addresses.
	Targets Targets
	// EgressProxy is a proxy for webhooks. Default: none, whatever the environment says.
	EgressProxy *url.URL
	// PublicURL is what callback URLs start with. Default: there are none, and AsyncCallback webhooks end as Invalid.
	PublicURL string
	// CallbackKey makes callback tokens. Required with PublicURL.
	CallbackKey []byte
	// Workers is how many operations of one namespace may write to the API server at once; a quarter more are there for
	// other namespaces. Default: 16: what waits should wait in the fair queue here, not in the API server.
	Workers int
	// MaxCalls bounds the calls under way, of all receivers together; a namespace gets at most half of them while others
	// may come, and one of several tenants of it three quarters of that half. Default: 512.
	MaxCalls int
	// Fence says why nothing may be done any more, because somebody else may be doing it: that of the lease under which
	// this Executor runs. It is asked just before each request that it sends, to receivers, token endpoints and, unless it
	// is a callback's, to the API server. It must be quick and safe for concurrent use. Default: there is none.
	Fence func() error
	// Shards says that this Executor works on the operations of some slots only, which it is told of as a participant of a
	// group (Gain and Lose), and asks for each of them, after Fence. Its layout must be by namespace. Operations may be a
	// store of just these slots, which then has to gain them before the Executor and to lose them after it; the other
	// stores are of all namespaces. One with a method Why(namespace string, uid types.UID) []why.Cause, as a group.Group has,
	// is asked who has what is not here. Default: it works on all operations.
	Shards Shards
	// Witness knows which Webhooks have killed the process, so that they can be quarantined. Default: none are.
	Witness Witness
	// Budget is what the operations of each namespace may use over time.
	Budget Budget
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Logger gets one line per decision. Default: that of the fairlead runtime that runs Run, else none.
	Logger *slog.Logger
	// Recorder gets Kubernetes Events. Default: none.
	Recorder Recorder
	// Registerer gets the metrics. Default: none.
	Registerer prometheus.Registerer
	// TracerProvider makes the spans of operations and of the calls of Webhooks; those of requests to the API server are
	// made by Calls. Default: none are made, and receivers are told of the span in which the operation was scheduled.
	TracerProvider trace.TracerProvider
}

// Targets say where webhooks may not be sent to. The functions are asked at each connection and must not block; nil
// ones know nothing. What is said further up beats what is said below.
type Targets struct {
	// Never are the addresses and ports of the API server, NeverHosts its names with ports ("api.example.com:6443"):
	// nothing allows them.
	Never      func() []netip.AddrPort
	NeverHosts []string
	// Deny are CIDRs and hosts that AllowTargets does not allow.
	Deny []string
	// Inside are the ranges of the services and pods of the cluster, which are denied unless AllowTargets names them, also
	// where they look public.
	Inside func() []netip.Prefix
}

// Recorder records Kubernetes Events, as [Events] does.
type Recorder interface {
	// Operation records that something happened to an operation. It never blocks.
	Operation(op *v1alpha1.Operation, warning bool, reason, message string)
}

// Executor runs Operations to their end. Only one may run for a namespace at a time: see leader election in the program
// that embeds it, Options.Fence and Options.Shards. A second one would do no harm to outcomes, but make calls twice, with
// the same keys.
type Executor struct {
	calls     *call.Client
	policy    call.Policy    // whose Fence is that of the Executor; see policyOf
	anyone    *client.Client // does what any replica may do
	client    *client.Client // does what the Fence allows; see clientOf
	shards    Shards         // nil: all is its own
	layout    shard.Layout   // of one slot, which is its own, without shards
	store     *store.Store
	hookStore *store.Store
	hooks     *compiled.Cache
	webhooks  *webhook.Client
	callbacks *Callbacks
	flow      *flow.Flow[run]
	engine    *flow.Engine
	traced    bool // spans are made
	tried     *tried
	attempts  *attempts
	metrics   *metrics
	stuck     *tally
	witness   Witness
	condemned map[string]Condemned // by revision
	recorder  Recorder
	log       *slog.Logger
	slot      inherit.Slot // of log
	now       func() time.Time

	holders  holders // of places of Webhooks
	slots    *share.Slots
	writes   *share.Budget // of status writes
	paces    paces         // of status writes that only repeat
	outside  *share.Budget // of calls
	stirs    *stirs
	status   *hookStatus
	secrets  *secrets
	releases *releases
	flights  sync.WaitGroup // calls under way
	stopped  chan struct{}  // closed when Run has returned
	fresh    *freshness
	trust    trust

	gained chan struct{} // holds a token while there may be something in tenures that has not begun

	mu      sync.Mutex
	tenures map[int]*tenure // by slot
	drain   drain
	live    map[string]map[string]*run // by namespace and name
	// progress counts the operations of live
	progress progress
	lines    map[store.Key]*line // runs that wait for the end of another operation, by its key

	troubles map[*run]*trouble      // of runs whose requests to the API server fail
	asking   map[*run]chan struct{} // closed when a run that somebody wants to look at can be looked at
}

type noRecorder struct{}

func (noRecorder) Operation(*v1alpha1.Operation, bool, string, string) {}

// drain is what Drain waits for. It is guarded by Executor.mu.
type drain struct {
	begun bool
	busy  map[*run]struct{} // runs with a call under way, or one that has come back and is not recorded yet
	idle  chan struct{}     // closed when a drain has begun and no run is busy
	lost  bool              // Run has ended while some were: idle is never closed
}
