package console

import (
	"context"
	"errors"
	"log/slog"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard/group"
)

// Options configures the console. The zero value works with fairlead.WithConsole.
type Options struct {
	// Runtime is the program to show. fairlead.WithConsole sets it.
	Runtime *fairlead.Runtime
	// Sections add pages of other parts of the program, such as those of operations (package operations/console).
	Sections []Section
	// Shards returns the report of the replicas that share the objects. Default: that of the runtime's group, if it has
	// one.
	Shards func(ctx context.Context) (*group.Report, error)
	// Authorizer decides about rights. Default: the API server, through the runtime. Tokens must be valid for one of
	// Audiences, or for the API server itself if empty.
	Authorizer Authorizer
	Audiences  []string
	// Proxy is a trusted proxy that names the users, who then need no login. It requires TLS, with a server that
	// requests the proxy's certificate by Proxy.TLS. Default: no proxy is trusted.
	Proxy *Proxy
	// GuardDebug protects the runtime's pages below /debug/, which are otherwise open to every client. It requires get
	// on their path, such as /debug/flows. With the section of operations, list of all served operations is enough.
	// Readers authenticate by a bearer token, a session or a Proxy. A request that may change state (POST) requires
	// that verb on the path and a bearer token, because a browser sends the other credentials automatically.
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
	// Logger receives logins and changes. Default: discarded.
	Logger *slog.Logger
}

// Section is a group of pages from another package of this module.
type Section = pages.Section

// Authorizer decides whether the bearer of a token has an access. May returns nil, an error with the status 401 or 403,
// such as a [*Problem], or another error when it cannot decide. Behind a [Proxy] it decides about the user of
// [Proxied]. Caller returns the display name of the user.
type Authorizer = pages.Authorizer

// Access is an action to authorize: on objects of the API server, or on a non-resource path.
type Access = access.Access

// Problem is the refusal of an access. Any error with the method HTTPStatus() int is one, too.
type Problem = access.Problem

// Proxy authenticates readers by the headers of a trusted proxy. Create it with [NewProxy].
type Proxy = access.Proxy

// ProxyOptions configures a [Proxy].
type ProxyOptions = access.ProxyOptions

// NewProxy returns a Proxy. It fails if the CA file is missing or unreadable.
func NewProxy(o ProxyOptions) (*Proxy, error) { return access.NewProxy(o) }

// Proxied returns the user that a proxy has named, from the context of the request.
func Proxied(ctx context.Context) (u authenticationv1.UserInfo, ok bool) { return access.Proxied(ctx) }

// complete checks the options and sets defaults.
func (o *Options) complete() error {
	if o.Runtime == nil {
		return errors.New("there is no Runtime to show")
	}
	if o.InsecureNoAuth && o.Authorizer != nil {
		return errors.New("InsecureNoAuth excludes an Authorizer")
	}
	if o.InsecureNoAuth && o.Proxy != nil {
		return errors.New("InsecureNoAuth excludes a Proxy")
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
		o.Authorizer = access.Anonymous{}
	case o.Authorizer != nil:
	case o.Runtime.Calls() == nil:
		return errors.New("the runtime has no cluster, which would authorize readers")
	default:
		o.Authorizer = access.NewKubernetes(o.Runtime.Calls(), o.Audiences...)
		o.Runtime.Need(
			rights.Of(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), "create"),
			rights.Of(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), "create"),
		)
	}
	return nil
}
