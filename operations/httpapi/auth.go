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

// Authorizer decides whether the bearer of a token may do something with operations of a namespace. It returns nil, a
// [*Problem] with status 401 or 403, or another error when it cannot decide. Behind a [Proxy] it has to decide about the
// user of [Proxied] instead, if there is one.
//
// Places are shared between callers (see Options). One that has the method Caller(token string) string says by it whose
// an authorized token is, empty if callers cannot be told apart; without it each token is a caller.
type Authorizer interface {
	Authorize(ctx context.Context, token, verb, namespace string) error
}

// Anonymous lets everybody do everything. It is for servers that only their own machine can reach.
type Anonymous struct{}

// Authorize returns nil.
func (Anonymous) Authorize(context.Context, string, string, string) error { return nil }

// May returns nil.
func (Anonymous) May(context.Context, string, Access) error { return nil }

// Caller returns the empty string: nobody is known.
func (Anonymous) Caller(string) string { return "" }

// callerOf returns who a proxy says it is, or else whose token it is.
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

// bearer returns the token of a request, empty if it has none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// clientKey is that of the client's address in a context.
type clientKey struct{}

// WithClient adds the address that a request comes from, by which reviews of unknown tokens are shared.
func WithClient(ctx context.Context, r *http.Request) context.Context {
	return context.WithValue(ctx, clientKey{}, serve.Client(r.RemoteAddr))
}

func clientOf(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}

// Protect has a page that tells of all operations, such as their flows, answer only those who may list them in every
// one of the namespaces; without any, in all that there are. Of an Authorizer that has the method May of [Kubernetes],
// the right to get the path of the page is enough, too.
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

// MayRead wants the right to a page or, to get one, that to list operations in each of the namespaces, if there are
// any. may says what there is the right to: its error is a *Problem with status 403 where there is not.
func MayRead(page Access, namespaces []string, may func(Access) error) error {
	err := may(page)
	p, ok := errors.AsType[*Problem](err)
	if !ok || p.Status != http.StatusForbidden || page.Verb != "get" || len(namespaces) == 0 { // to read is not to change
		return err
	}
	for _, namespace := range namespaces {
		if err := may(OperationAccess("list", namespace)); err != nil {
			return err
		}
	}
	return nil
}

// allows is what an Authorizer says of an access: of pages, one without the method May of [Kubernetes] knows nothing.
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
