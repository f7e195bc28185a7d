package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// limited is a program with granted permissions only.
type limited struct {
	*bench
	cfg    *rest.Config
	admin  *kubernetes.Clientset
	log    testlog.Book
	grants int
}

func newLimited(t *testing.T) *limited {
	l := &limited{bench: setup(t)}
	l.cfg = rest.CopyConfig(env.Config(t))
	l.cfg.Impersonate = rest.ImpersonationConfig{UserName: "limited-" + l.namespace}
	l.admin = kubernetes.NewForConfigOrDie(env.Config(t))
	return l
}

func (l *limited) runtime(opts ...fairlead.Option) {
	l.rt = fairlead.New(l.cfg, append(opts, fairlead.WithScheme(testbed.Scheme()),
		fairlead.WithSource(cache.Namespaces(l.namespace)),
		fairlead.WithLogger(slog.New(slog.NewTextHandler(&l.log, nil))))...)
}

func (l *limited) grant(group, resource string, verbs ...string) {
	l.t.Helper()
	l.grants++
	meta := metav1.ObjectMeta{Name: fmt.Sprint("grant-", l.grants), Namespace: l.namespace}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs},
	}}
	_, err := l.admin.RbacV1().Roles(l.namespace).Create(l.ctx, role, metav1.CreateOptions{})
	if err == nil {
		_, err = l.admin.RbacV1().RoleBindings(l.namespace).Create(l.ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: l.cfg.Impersonate.UserName}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *limited) page(path string) (int, string) {
	w := httptest.NewRecorder()
	l.rt.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

// ready waits until /readyz has this code and contains all of these texts.
func (l *limited) ready(code int, says ...string) {
	l.t.Helper()
	got, body := 0, ""
	defer func() {
		if l.t.Failed() {
			l.t.Logf("readyz is %d: %s", got, body)
		}
	}()
	await(l.ctx, l.t, func() bool {
		got, body = l.page("/readyz")
		for _, want := range says {
			if !strings.Contains(body, want) {
				return false
			}
		}
		return got == code
	})
}

// /readyz and /debug/controllers name a forbidden list with the server's message until it is permitted.
func TestForbiddenListIsNamed(t *testing.T) {
	l := newLimited(t)
	l.runtime()
	l.start(func(context.Context, int, *gateway) (reconcile.Result, error) { return reconcile.Done, nil })
	says := []string{
		"gateways.test.fairlead.io in " + l.namespace, "Forbidden", `cannot list resource "gateways"`,
		`in the namespace "` + l.namespace + `"`,
	}
	l.ready(503, says...)
	_, body := l.page("/debug/controllers")
	for _, want := range append(says, "listing") {
		if !strings.Contains(body, want) {
			t.Errorf("/debug/controllers lacks %q:\n%s", want, body)
		}
	}
	l.grant(testbed.GroupVersion.Group, "gateways", "get", "list", "watch")
	l.ready(200, "ready")
}

// A process that may not read or write the Lease is not ready, and the message gives the cause. With the permission it
// is ready.
func TestForbiddenLeaseIsNamed(t *testing.T) {
	l := newLimited(t)
	l.runtime(fairlead.WithLeaderElection(l.namespace, "gateways"))
	worked := make(chan struct{})
	l.rt.Add("work", func(ctx context.Context) error {
		close(worked)
		<-ctx.Done()
		return nil
	})
	l.run()
	l.ready(503, "standby", "cannot read the lease "+l.namespace+"/gateways", "forbidden", `cannot get resource "leases"`)
	l.grant("coordination.k8s.io", "leases", "get")
	l.ready(503, "standby", "cannot create the lease "+l.namespace+"/gateways", `cannot create resource "leases"`)
	l.grant("coordination.k8s.io", "leases", "create", "update")
	select {
	case <-worked:
	case <-l.ctx.Done():
		t.Fatal("no process leads")
	}
	if !strings.Contains(l.log.String(), "lease="+l.namespace+"/gateways") {
		t.Error("the election does not use the logger of the runtime")
	}
}

// The same for the Lease of one controller: the runtime reports it, though it has no Lease of its own.
func TestForbiddenLeaseOfAController(t *testing.T) {
	l := newLimited(t)
	l.grant(testbed.GroupVersion.Group, "gateways", "get", "list", "watch")
	l.runtime()
	election, err := lease.New(l.cfg, lease.Options{Namespace: l.namespace, Name: "gateways"})
	if err != nil {
		t.Fatal(err)
	}
	l.rt.Add("lease", election.Run)
	l.start(func(context.Context, int, *gateway) (reconcile.Result, error) { return reconcile.Done, nil },
		reconcile.Leader(election))
	l.ready(503, "controller gateways: standby", "cannot read the lease", `cannot get resource "leases"`)
	l.grant("coordination.k8s.io", "leases", "get", "create", "update")
	l.ready(200, "ready")
	if !strings.Contains(l.log.String(), "lease="+l.namespace+"/gateways") {
		t.Error("the election does not use the logger of the runtime")
	}
}

// A failure caused by the object is reported as an Event about it. Without the permission to write Events the failure
// is logged, and a later permission is used.
func TestEventsOfFailures(t *testing.T) {
	l := newLimited(t)
	l.grant(testbed.GroupVersion.Group, "gateways", "get", "list", "watch")
	l.runtime()
	l.start(func(_ context.Context, _ int, g *gateway) (reconcile.Result, error) {
		switch g.Name {
		case "first":
			return reconcile.Terminal(errors.New("no such size"))
		case "second":
			panic("ouch")
		}
		return reconcile.Retry(errors.New("unreachable"))
	})
	l.create("first")
	await(l.ctx, t, func() bool { return strings.Contains(l.log.String(), "cannot write an Event about a failure") })
	l.grant("events.k8s.io", "events", "create", "patch")
	l.create("second")
	l.create("third")
	var all *corev1.EventList
	await(l.ctx, t, func() bool {
		var err error
		if all, err = l.admin.CoreV1().Events(l.namespace).List(l.ctx, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		return len(all.Items) > 0 && all.Items[0].Series != nil && all.Items[0].Series.Count > 1
	})
	if e := all.Items[0]; len(all.Items) != 1 || e.InvolvedObject.Name != "second" || e.Reason != "ReconcilePanicked" ||
		e.Message != "panic: ouch" ||
		e.Type != corev1.EventTypeWarning {
		t.Errorf("the events are %+v", all.Items)
	}
}
