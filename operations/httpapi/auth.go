package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/serve"
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
type Anonymous struct{}

// Authorize returns nil.
func (Anonymous) Authorize(context.Context, string, string, string) error { return nil }

// May returns nil.
func (Anonymous) May(context.Context, string, Access) error { return nil }

// Caller returns the empty string.
func (Anonymous) Caller(string) string { return "" }

// callerOf returns the user that a proxy names, or else the caller of the token.
func callerOf(ctx context.Context, a Authorizer, token string) string {
	if who := proxied(ctx); who != nil {
		return who.user.Username
	}
	if knows, ok := a.(interface{ Caller(token string) string }); ok {
		return knows.Caller(token)
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

// bearer returns the bearer token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// clientKey is the context key of the client address.
type clientKey struct{}

// WithClient returns a context with the client address of r. Reviews of unknown tokens are shared by client address.
func WithClient(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, clientKey{}, serve.Client(r.RemoteAddr))
}

func clientOf(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}

// Protect wraps a page that shows all operations, such as their flows. It answers only callers who may list operations
// in every one of the namespaces, or cluster-wide if none are given. With an Authorizer that has the method May of
// [Kubernetes], the right to get the path of the page is enough, too.
func Protect(page http.Handler, a Authorizer, namespaces ...string) http.Handler {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, token := WithClient(r.Context(), r), bearer(r)
		err := MayRead(PathAccess(r), namespaces, func(access Access) error { return allows(ctx, a, token, access) })
		if err != nil {
			answerProblem(w, err)
			return
		}
		serve.Known(ctx)
		page.ServeHTTP(w, r)
	})
}

// MayRead checks the right to a page. For verb get, the right to list operations in each of the namespaces is enough,
// if there are any. may checks a single right; it returns a *Problem with status 403 if the right is missing.
func MayRead(page Access, namespaces []string, may func(Access) error) error {
	err := may(page)
	p, ok := errors.AsType[*Problem](err)
	if !ok || p.Status != http.StatusForbidden || page.Verb != "get" || len(namespaces) == 0 { // list permits reading only
		return err
	}
	for _, namespace := range namespaces {
		if err := may(OperationAccess("list", namespace)); err != nil {
			return err
		}
	}
	return nil
}

// allows checks an access with an Authorizer. An Authorizer without the method May of [Kubernetes] permits no access to
// paths.
func allows(ctx context.Context, a Authorizer, token string, access Access) error {
	if access.Path == "" {
		return a.Authorize(ctx, token, access.Verb, access.Namespace)
	}
	if decides, ok := a.(interface {
		May(ctx context.Context, token string, a Access) error
	}); ok {
		return decides.May(ctx, token, access)
	}
	return &Problem{Status: http.StatusForbidden, Title: http.StatusText(http.StatusForbidden)}
}
