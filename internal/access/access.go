// Package access decides about the rights of callers. A caller is identified by a token of the cluster (TokenReview),
// or by a trusted Proxy. The API server decides about the rights of the caller (SubjectAccessReview), see Kubernetes. A
// refusal is a Problem. Everything in the package is safe for concurrent use.
package access

import (
	"context"
	"net/http"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/serve"
)

// Access is an action to authorize: on objects of the API server, or on a non-resource path.
type Access struct {
	Verb, Group, Resource, Subresource string
	Namespace                          string // empty: all namespaces, or a cluster-scoped resource
	Name                               string // empty: all objects
	Path                               string // instead of a resource, such as /debug/flows
}

// PathAccess returns the Access that a request for a page needs, in the form of non-resource paths of the API server.
// HEAD counts as get.
func PathAccess(r *http.Request) Access {
	at := path.Clean("/" + r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") && at != "/" {
		at += "/"
	}
	verb := strings.ToLower(r.Method)
	if r.Method == http.MethodHead {
		verb = "get"
	}
	return Access{Verb: verb, Path: at}
}

// String returns a text such as "get secrets/pull in namespace prod".
func (a Access) String() string {
	if a.Path != "" {
		return a.Verb + " " + a.Path
	}
	s := a.Verb + " " + a.Resource
	if a.Group != "" {
		s += "." + a.Group
	}
	for _, part := range []string{a.Subresource, a.Name} {
		if part != "" {
			s += "/" + part
		}
	}
	if a.Namespace == metav1.NamespaceAll {
		return s + " in all namespaces"
	}
	return s + " in namespace " + a.Namespace
}

// MayRead checks the right to a page. For verb get, all rights of instead together are enough, if there are any. may
// checks a single right.
func MayRead(page Access, instead []Access, may func(Access) error) error {
	err := may(page)
	if StatusOf(err) != http.StatusForbidden || page.Verb != "get" || len(instead) == 0 { // instead permits reading only
		return err
	}
	for _, right := range instead {
		if err := may(right); err != nil {
			return err
		}
	}
	return nil
}

// Anonymous permits every access.
type Anonymous struct{}

// May returns nil.
func (Anonymous) May(context.Context, string, Access) error { return nil }

// Caller returns the empty string.
func (Anonymous) Caller(string) string { return "" }

// Bearer returns the bearer token of a request, or "".
func Bearer(r *http.Request) string {
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
