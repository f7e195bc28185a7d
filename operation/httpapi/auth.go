package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
)

// Authorizer decides whether the bearer of a token may do something with operations of a namespace. It returns nil, a
// [*Problem] with status 401 or 403, or another error when it cannot decide.
type Authorizer interface {
	Authorize(ctx context.Context, token, verb, namespace string) error
}

// Anonymous lets everybody do everything. It is for servers that only their own machine can reach.
type Anonymous struct{}

// Authorize returns nil.
func (Anonymous) Authorize(context.Context, string, string, string) error { return nil }

// Kubernetes asks the API server: who is this (TokenReview), and may they (SubjectAccessReview). Answers are kept for a
// short time, refusals for a shorter one. It is safe for concurrent use; make it with [NewKubernetes].
type Kubernetes struct {
	calls *call.Client
	mu    sync.Mutex
	known map[question]verdict
	now   func() time.Time
}

type question struct {
	token           [sha256.Size]byte
	verb, namespace string
}

type verdict struct {
	err   error
	until time.Time
}

const (
	keepAllowed = 10 * time.Second
	keepRefused = 2 * time.Second
	keepMost    = 4096
)

// NewKubernetes returns an Authorizer that asks the API server of the calls.
func NewKubernetes(calls *call.Client) *Kubernetes {
	return &Kubernetes{calls: calls, known: make(map[question]verdict), now: time.Now}
}

// Authorize implements [Authorizer].
func (k *Kubernetes) Authorize(ctx context.Context, token, verb, namespace string) error {
	if token == "" {
		return &Problem{Status: http.StatusUnauthorized, Title: "Unauthorized", Detail: "send the header Authorization: Bearer with a token of this cluster"}
	}
	q := question{sha256.Sum256([]byte(token)), verb, namespace}
	if v, ok := k.lookup(q); ok {
		return v
	}
	err := k.ask(ctx, token, verb, namespace)
	var refused *Problem
	if err == nil || errors.As(err, &refused) {
		k.keep(q, err)
	}
	return err
}

func (k *Kubernetes) lookup(q question) (error, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.known[q]
	return v.err, ok && k.now().Before(v.until)
}

func (k *Kubernetes) keep(q question, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) >= keepMost {
		clear(k.known)
	}
	v := verdict{err: err, until: k.now().Add(keepAllowed)}
	if err != nil {
		v.until = k.now().Add(keepRefused)
	}
	k.known[q] = v
}

func (k *Kubernetes) ask(ctx context.Context, token, verb, namespace string) error {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := k.create(ctx, authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"), who); err != nil {
		return fmt.Errorf("cannot find out who calls: %w", err)
	}
	if !who.Status.Authenticated {
		return &Problem{Status: http.StatusUnauthorized, Title: "Unauthorized", Detail: "the token is not valid in this cluster"}
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v1alpha1.GroupVersion.Group, Resource: "operations", Verb: verb, Namespace: namespace,
		},
	}}
	if err := k.create(ctx, authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"), may); err != nil {
		return fmt.Errorf("cannot find out what the caller may do: %w", err)
	}
	if !may.Status.Allowed {
		where := "namespace " + namespace
		if namespace == metav1.NamespaceAll {
			where = "all namespaces"
		}
		return &Problem{
			Status: http.StatusForbidden, Title: "Forbidden",
			Detail: fmt.Sprintf("%s may not %s operations.%s in %s", user.Username, verb, v1alpha1.GroupVersion.Group, where),
		}
	}
	return nil
}

// create has the API server answer a review. It may be asked twice.
func (k *Kubernetes) create(ctx context.Context, review schema.GroupVersionResource, obj runtime.Object) error {
	answer, err := call.Do(ctx, k.calls, call.Request{
		Verb: call.VerbCreate, Resource: review, Object: obj, Idempotent: true,
		Kind: strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1."),
	}, call.Policy{})
	if err != nil {
		return err
	}
	return answer.Into(obj)
}

// bearer returns the token of a request, empty if it has none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Protect has a page that tells of all operations, such as their flows, answer only those who may list them in every one of the namespaces;
// without any, in all that there are.
func Protect(page http.Handler, a Authorizer, namespaces ...string) http.Handler {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, namespace := range namespaces {
			if err := a.Authorize(r.Context(), bearer(r), "list", namespace); err != nil {
				answerProblem(w, err)
				return
			}
		}
		page.ServeHTTP(w, r)
	})
}
