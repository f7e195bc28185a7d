package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// Limited returns the client configuration of a user, such as "system:serviceaccount:web-system:web", with the
// permissions of these RBAC objects and those of every user. Limited first writes the objects and their namespaces, and
// waits until the API server applies them. Until the test ends, a request that is refused as forbidden fails the test.
// A test can thus show that a role suffices for a program, or which permission is missing.
//
// Objects are roles, cluster roles and their bindings, as rights.Manifests returns them. They replace objects of the
// same name and are not removed.
func (e *Env) Limited(t testing.TB, user string, objects ...runtime.Object) *rest.Config {
	t.Helper()
	cfg := e.Config(t)
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	for _, o := range objects {
		if err := write(ctx, c, o); err != nil {
			t.Fatalf("cannot write a %T: %v", o, err)
		}
	}
	for _, o := range objects {
		if err := heeded(ctx, c, user, o); err != nil {
			t.Fatalf("the API server does not let %s do what a %T allows: %v", user, o, err)
		}
	}
	own := rest.CopyConfig(cfg)
	own.Impersonate = rest.ImpersonationConfig{UserName: user}
	refused := &refused{t: t, told: map[string]bool{}}
	t.Cleanup(refused.end)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return refusing{next, refused} })
	return own
}

// write creates or replaces an object.
func write(ctx context.Context, c kubernetes.Interface, o runtime.Object) error {
	create, update := metav1.CreateOptions{}, metav1.UpdateOptions{}
	rbac := c.RbacV1()
	var err error
	switch o := o.DeepCopyObject().(type) {
	case *rbacv1.ClusterRole:
		if _, err = rbac.ClusterRoles().Create(ctx, o, create); apierrors.IsAlreadyExists(err) {
			_, err = rbac.ClusterRoles().Update(ctx, o, update)
		}
	case *rbacv1.ClusterRoleBinding:
		if _, err = rbac.ClusterRoleBindings().Create(ctx, o, create); apierrors.IsAlreadyExists(err) {
			_, err = rbac.ClusterRoleBindings().Update(ctx, o, update)
		}
	case *rbacv1.Role:
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}}
		if _, err := c.CoreV1().Namespaces().Create(ctx, ns, create); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if _, err = rbac.Roles(o.Namespace).Create(ctx, o, create); apierrors.IsAlreadyExists(err) {
			_, err = rbac.Roles(o.Namespace).Update(ctx, o, update)
		}
	case *rbacv1.RoleBinding:
		if _, err = rbac.RoleBindings(o.Namespace).Create(ctx, o, create); apierrors.IsAlreadyExists(err) {
			_, err = rbac.RoleBindings(o.Namespace).Update(ctx, o, update)
		}
	default:
		err = errors.New("it is no object of RBAC")
	}
	return err
}

// heeded waits until a user has the permissions of each rule of a role.
func heeded(ctx context.Context, c kubernetes.Interface, user string, o runtime.Object) error {
	namespace, rules := "", []rbacv1.PolicyRule(nil)
	switch o := o.(type) {
	case *rbacv1.ClusterRole:
		rules = o.Rules
	case *rbacv1.Role:
		namespace, rules = o.Namespace, o.Rules
	}
	for _, rule := range rules {
		if len(rule.Resources) == 0 {
			continue // a rule for URLs that are not resources
		}
		for _, verb := range rule.Verbs {
			asked := &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0],
			}
			if resource, sub, ok := strings.Cut(rule.Resources[0], "/"); ok {
				asked.Resource, asked.Subresource = resource, sub
			}
			if len(rule.ResourceNames) > 0 {
				asked.Name = rule.ResourceNames[0]
			}
			if err := allowed(ctx, c, user, asked); err != nil {
				return fmt.Errorf("%s %v: %w", verb, rule.Resources[0], err)
			}
		}
	}
	return nil
}

// allowed polls until the server confirms a permission of a user.
func allowed(
	ctx context.Context, c kubernetes.Interface, user string, asked *authorizationv1.ResourceAttributes,
) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		review, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: asked},
		}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// refused reports refused requests to a test while it runs.
type refused struct {
	mu   sync.Mutex
	t    testing.TB // nil: the test has ended
	told map[string]bool
}

// tell fails the test, once for each distinct request.
func (r *refused) tell(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.t == nil || r.told[what] {
		return
	}
	r.told[what] = true
	r.t.Errorf("refused: %s", what)
}

func (r *refused) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t = nil
}

// refusing is a transport that detects refused requests.
type refusing struct {
	http.RoundTripper
	refused *refused
}

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	why := string(body)
	if o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if st, ok := o.(*metav1.Status); ok {
			why = st.Message
		}
	}
	r.refused.tell(req.Method + " " + req.URL.Path + ": " + why)
	return resp, nil
}

// WrappedRoundTripper returns the underlying transport.
func (r refusing) WrappedRoundTripper() http.RoundTripper { return r.RoundTripper }
