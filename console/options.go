package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard/group"
)

// Options configures the console. The zero value works with fairlead.WithConsole.
type Options struct {
	// Runtime is the program to show. fairlead.WithConsole sets it.
	Runtime *fairlead.Runtime
	// Operations adds the pages of operations. Default: none.
	Operations *Operations
	// Shards returns the report of the replicas that share the objects. Default: that of the runtime's group, if it has
	// one.
	Shards func(ctx context.Context) (*group.Report, error)
	// Authorizer decides about rights. Default: the API server, through the runtime. Tokens must be valid for one of
	// Audiences, or for the API server itself if empty.
	Authorizer Authorizer
	Audiences  []string
	// Proxy is a trusted proxy that names the users, who then need no login. It requires TLS, with a server that
	// requests the proxy's certificate by httpapi.Proxy.TLS. Default: no proxy is trusted.
	Proxy *httpapi.Proxy
	// GuardDebug protects the runtime's pages below /debug/, which are otherwise open to every client. It requires get
	// on their path, such as /debug/flows, or list of all served operations. Readers authenticate by a bearer token, a
	// session or a Proxy. A request that may change state (POST) requires that verb on the path and a bearer token,
	// because a browser sends the other credentials automatically.
	GuardDebug bool
	// InsecureNoAuth shows everything to every client that can connect. Only requests with localhost or a loopback
	// address as host are served.
	InsecureNoAuth bool
	// SessionKey seals the cookie. Replicas behind one address share it. At least 32 bytes. Default: random, so that a
	// restart ends all sessions.
	SessionKey []byte
	// SessionNamespace is the namespace of the ConfigMap fairlead-console-sessions, by which replicas with the same
	// SessionKey share logouts. Each replica refuses an ended session within five seconds. Without it, or without the
	// rights to get, create and update the ConfigMap, a session lasts 15 minutes after its last use.
	SessionNamespace string
	// TraceURL is the URL of a trace with {trace} in place of its id. Pages of operations link to it. Default: only the
	// id is shown.
	TraceURL string
	// Logger receives logins and changes. Default: discarded.
	Logger *slog.Logger
}

// Operations configures the pages of operations.
type Operations struct {
	Operations, Webhooks *cache.Store
	Scheduler            *operations.Scheduler
	// Executor runs the operations in this process.
	Executor *executor.Executor
	// Namespaces are the served namespaces. Empty: all.
	Namespaces []string
}

// Authorizer decides whether the bearer of a token has an access. May returns nil, a *httpapi.Problem with status 401
// or 403, or another error when it cannot decide. Behind a Proxy it decides about the user of httpapi.Proxied. Caller
// returns the display name of the user.
type Authorizer interface {
	May(ctx context.Context, token string, a httpapi.Access) error
	Caller(token string) string
}

// minSessionKey is the minimum length of a session key in bytes.
const minSessionKey = 32

func (o *Options) complete() error {
	if o.Runtime == nil {
		return errors.New("cannot make the console: there is no runtime to show")
	}
	if len(o.SessionKey) > 0 && len(o.SessionKey) < minSessionKey {
		return errors.New("cannot make the console: the session key has less than 32 bytes")
	}
	if ops := o.Operations; ops != nil &&
		(ops.Operations == nil || ops.Webhooks == nil || ops.Scheduler == nil || ops.Executor == nil) {
		return errors.New("cannot make the console: of the operations, their stores, scheduler and executor are needed")
	}
	if o.TraceURL != "" {
		u, err := url.Parse(o.TraceURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.Contains(o.TraceURL, "{trace}") {
			return fmt.Errorf("cannot make the console: %q is not the URL of a trace, such as https://traces.example.com/trace/{trace}",
				o.TraceURL)
		}
	}
	if o.InsecureNoAuth && o.Authorizer != nil {
		return errors.New("cannot make the console: InsecureNoAuth leaves nothing to an Authorizer")
	}
	if o.InsecureNoAuth && o.Proxy != nil {
		return errors.New("cannot make the console: InsecureNoAuth leaves nothing to a Proxy")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Shards == nil {
		if g := o.Runtime.Shards(); g != nil {
			o.Shards = func(ctx context.Context) (*group.Report, error) { return g.Report(ctx) }
		}
	}
	switch {
	case o.InsecureNoAuth:
		o.Authorizer = httpapi.Anonymous{}
	case o.Authorizer != nil:
	case o.Runtime.Calls() == nil:
		return errors.New("cannot make the console: the runtime has no cluster to ask who may see what")
	default:
		o.Authorizer = httpapi.NewKubernetes(o.Runtime.Calls(), o.Audiences...)
		o.Runtime.Need(
			rights.Of(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), "create"),
			rights.Of(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), "create"),
		)
	}
	return nil
}

// Open returns the handler for a runtime.
func (o Options) Open(rt *fairlead.Runtime) (http.Handler, error) {
	o.Runtime = rt
	return New(o)
}
