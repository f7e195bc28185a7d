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

// Options configure the pages. The zero value is good for a program that is given them by fairlead.WithConsole.
type Options struct {
	// Runtime is the program that is shown. fairlead.WithConsole sets it.
	Runtime *fairlead.Runtime
	// Operations are shown besides. Default: there are none.
	Operations *Operations
	// Shards tells of the replicas that share the objects. Default: the group of the runtime, if it has one.
	Shards func(ctx context.Context) (*group.Report, error)
	// Authorizer decides who may see and do what. Default: the API server, asked by the runtime; tokens have to be meant
	// for one of Audiences, or for the API server itself without any.
	Authorizer Authorizer
	Audiences  []string
	// Proxy is one that says who its callers are: they need no login. It counts by TLS only, where httpapi.Proxy.TLS has the
	// server ask for its certificate. Default: nobody else says who somebody is.
	Proxy *httpapi.Proxy
	// GuardDebug has the runtime's pages below /debug/, which else answer everybody, want what its pages here want: get on
	// their path, such as /debug/flows, or list of all operations that are served; by a bearer token, a session or a
	// Proxy. A request that may change something (POST) wants that verb on the path, and a bearer token: a browser sends
	// the others by itself.
	GuardDebug bool
	// InsecureNoAuth shows everything to everybody who can connect: only programs of this machine may, by a loopback
	// address as host.
	InsecureNoAuth bool
	// SessionKey seals what the cookie holds; replicas behind one address share it. At least 32 bytes; default: random,
	// so that a restart of the program ends all sessions.
	SessionKey []byte
	// SessionNamespace is where replicas that share a SessionKey have the ConfigMap fairlead-console-sessions, by which they
	// know of sessions that people have ended: each replica refuses such a session within five seconds. Without it, or
	// without the rights to get, create and update the ConfigMap, a session lasts 15 minutes after its last use.
	SessionNamespace string
	// TraceURL is where traces are shown, with {trace} where the id of one belongs: the pages of operations link to theirs.
	// Default: the id alone is shown.
	TraceURL string
	// Logger is told who has logged in, and who has changed something. Default: discarded.
	Logger *slog.Logger
}

// Operations are what the pages of operations show, and act on.
type Operations struct {
	Operations, Webhooks *cache.Store
	Scheduler            *operations.Scheduler
	// Executor runs them in this process.
	Executor *executor.Executor
	// Namespaces are those that are served; empty: all.
	Namespaces []string
}

// Authorizer decides whether the bearer of a token has an access. It returns nil, a *httpapi.Problem with status 401 or
// 403, or another error when it cannot decide; behind a Proxy about the user of httpapi.Proxied. Caller returns the name
// of who it is, for people to read.
type Authorizer interface {
	May(ctx context.Context, token string, a httpapi.Access) error
	Caller(token string) string
}

// minSessionKey is as much as cannot be guessed.
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

// Open returns the pages for a runtime.
func (o Options) Open(rt *fairlead.Runtime) (http.Handler, error) {
	o.Runtime = rt
	return New(o)
}
