package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Authorizer decides whether the bearer of a token may act on operations of a namespace. It returns nil, a [*Problem]
// with status 401 or 403, or another error when it cannot decide. Behind a [Proxy], an Authorizer must decide about the
// user of [Proxied] instead, if there is one.
//
// Slots are shared between callers (see Options). If the Authorizer has the method Caller(token string) string, its
// result identifies the caller of an authorized token. An empty result means that callers cannot be distinguished.
// Without the method, each token is a caller.
type Authorizer interface {
	Authorize(ctx context.Context, token, verb, namespace string) error
}

// Anonymous is an Authorizer that permits every request. Use it only for servers that are reachable from their own
// machine only.
type Anonymous struct{ access.Anonymous }

// Authorize returns nil.
func (Anonymous) Authorize(context.Context, string, string, string) error { return nil }

// Kubernetes is an Authorizer that asks the API server. It authenticates by TokenReview and authorizes by
// SubjectAccessReview. It is a prometheus.Collector and safe for concurrent use. Create it with [NewKubernetes].
type Kubernetes struct{ *access.Kubernetes }

// NewKubernetes returns an Authorizer that sends reviews through calls. A token must be valid for one of the audiences.
// Without audiences, or for the empty one, it must be valid for the API server itself.
func NewKubernetes(calls *call.Client, audiences ...string) *Kubernetes {
	return &Kubernetes{access.NewKubernetes(calls, audiences...)}
}

// Authorize implements [Authorizer].
func (k *Kubernetes) Authorize(ctx context.Context, token, verb, namespace string) error {
	err := k.May(ctx, token, OperationAccess(verb, namespace))
	if p, ok := errors.AsType[*access.Problem](err); ok {
		return problemFrom(p)
	}
	return err
}

// Access is an action to authorize: on objects of the API server, or on a non-resource path.
type Access = access.Access

// OperationAccess returns the Access for a verb on operations of a namespace.
func OperationAccess(verb, namespace string) Access {
	return Access{Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "operations", Namespace: namespace}
}

// Proxy authenticates callers by the headers of a trusted proxy, like the request-header authentication of the API
// server. Create it with [NewProxy]; it is safe for concurrent use.
type Proxy = access.Proxy

// ProxyOptions configures a [Proxy].
type ProxyOptions = access.ProxyOptions

// NewProxy returns a Proxy. It fails if the CA file is missing or unreadable.
func NewProxy(o ProxyOptions) (*Proxy, error) { return access.NewProxy(o) }

// Proxied returns the user that a proxy has named, from the context of the request. A custom Authorizer must decide
// about that user instead of the token.
func Proxied(ctx context.Context) (u authenticationv1.UserInfo, ok bool) { return access.Proxied(ctx) }

// callerOf returns the user that a proxy names, or else the caller of the token.
func callerOf(ctx context.Context, a Authorizer, token string) string {
	if user, ok := access.Proxied(ctx); ok {
		return user.Username
	}
	if knows, ok := a.(interface{ Caller(token string) string }); ok {
		return knows.Caller(token)
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

// Protect wraps a page that shows all operations, such as their flows. It answers only callers who may list operations
// in every one of the namespaces, or cluster-wide if none are given. With an Authorizer that has the method May of
// [Kubernetes], the right to get the path of the page is enough, too.
func Protect(page http.Handler, a Authorizer, namespaces ...string) http.Handler {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	instead := make([]Access, len(namespaces))
	for i, namespace := range namespaces {
		instead[i] = OperationAccess("list", namespace)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, token := access.WithClient(r.Context(), r), access.Bearer(r)
		err := access.MayRead(access.PathAccess(r), instead, func(right Access) error { return allows(ctx, a, token, right) })
		if err != nil {
			answerProblem(w, err)
			return
		}
		serve.Known(ctx)
		page.ServeHTTP(w, r)
	})
}

// allows checks an access with an Authorizer. An Authorizer without the method May of [Kubernetes] permits no access to
// paths.
func allows(ctx context.Context, a Authorizer, token string, right Access) error {
	if right.Path == "" {
		return a.Authorize(ctx, token, right.Verb, right.Namespace)
	}
	if decides, ok := a.(interface {
		May(ctx context.Context, token string, a Access) error
	}); ok {
		return decides.May(ctx, token, right)
	}
	return &Problem{Status: http.StatusForbidden, Title: http.StatusText(http.StatusForbidden)}
}
