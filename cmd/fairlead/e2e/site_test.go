package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/install"
)

// site is a namespace of a real control plane, a receiver, and controllers in processes of their own.
type site struct {
	t          *testing.T
	ctx        context.Context
	config     *rest.Config
	calls      *call.Client
	namespace  string
	kubeconfig string
	scheduler  *operations.Scheduler
	receiver   *httptest.Server
	env        []string // of the controllers, in addition to that of the test

	mu      sync.Mutex
	effects map[string]int // requests by idempotency key
}

func newSite(t *testing.T, config *rest.Config) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	if err := install.CRDs(ctx, calls); err != nil {
		t.Fatal(err)
	}
	s := &site{
		t: t, ctx: ctx, config: config, calls: calls, namespace: clustertest.Namespace(t, config),
		effects: make(map[string]int),
	}
	s.kubeconfig = program.Kubeconfig(t, config, "")
	if s.scheduler, err = operations.NewScheduler(
		operations.Options{Config: config, Calls: calls, Namespace: s.namespace},
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.scheduler.Close)
	s.receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		s.mu.Lock()
		s.effects[r.Header.Get("Idempotency-Key")]++
		s.mu.Unlock()
		if r.URL.Path == "/slow" { // so that a kill always interrupts a call
			select {
			case <-time.After(time.Duration(rand.IntN(200)) * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(s.receiver.Close)
	return s
}

func (s *site) webhook(name, path string, change func(*v1alpha1.WebhookSpec)) {
	s.t.Helper()
	w := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}}
	w.Spec.Request.URL = s.receiver.URL + path
	w.Spec.Retry.InitialInterval = metav1.Duration{Duration: 50 * time.Millisecond}
	w.Spec.RequestTimeout = metav1.Duration{Duration: 10 * time.Minute} // so that a slow machine causes no second try
	if change != nil {
		change(&w.Spec)
	}
	w.Default()
	if _, err := call.Do(s.ctx, s.calls, call.Request{
		Verb: call.VerbCreate, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook,
		Namespace: s.namespace, Name: name, Object: w,
	}, call.Policy{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) scheduleMany(n int, r operations.Request) (ids []string) {
	s.t.Helper()
	for i := range n {
		r.Type, r.Resource = operations.Delete, operations.Resource{Type: "app", ID: fmt.Sprint(i)}
		op, err := s.scheduler.Schedule(s.ctx, r)
		if err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, op.EffectiveID())
	}
	return ids
}

// allSucceeded waits for the end of all operations, and checks that each had all of its effects, and no others.
func (s *site) allSucceeded(ids []string, webhooks ...string) {
	s.t.Helper()
	for i, id := range ids {
		v, err := s.scheduler.Wait(s.ctx, operations.Resource{Type: "app", ID: fmt.Sprint(i)}, id, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if v.Status != operations.Succeeded {
			s.t.Errorf("operation %d: %s %s %s", i, v.Status, v.Reason, v.Error)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		for _, name := range webhooks {
			if s.effects[s.namespace+"."+id+"."+name] == 0 {
				s.t.Errorf("webhook %s of operation %s had no effect", name, id)
			}
		}
	}
	if len(s.effects) != len(ids)*len(webhooks) {
		s.t.Errorf("%d effects, want %d", len(s.effects), len(ids)*len(webhooks))
	}
}

// lease returns the current Lease.
func (s *site) lease() *coordinationv1.Lease {
	s.t.Helper()
	lease, err := kubernetes.NewForConfigOrDie(s.config).CoordinationV1().Leases(s.namespace).Get(s.ctx, leaseName,
		metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		s.t.Fatalf("no leader: %v", err)
	}
	return lease
}

// leader returns the process that holds the Lease, by the process id in the identity.
func (s *site) leader(replicas map[int]*process) *process {
	s.t.Helper()
	lease := s.lease()
	var pid int
	host, rest, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	if _, err := fmt.Sscanf(rest, "%d_", &pid); err != nil || replicas[pid] == nil {
		s.t.Fatalf("identity %s of %s has no process id: %v", *lease.Spec.HolderIdentity, host, err)
	}
	return replicas[pid]
}

// deploy applies a manifest of deploy/ in the namespace of the test. Objects of the cluster get unique names.
func (s *site) deploy(file string) {
	s.t.Helper()
	s.deployIn(s.namespace, file)
}

func (s *site) deployIn(namespace, file string) {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", file))
	if err != nil {
		s.t.Fatal(err)
	}
	objects := dynamic.NewForConfigOrDie(s.config)
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	var rules []rbacv1.PolicyRule
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		obj := &unstructured.Unstructured{}
		if err == nil {
			err = yaml.Unmarshal(doc, &obj.Object)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		gvr := schema.GroupVersionResource{
			Group: obj.GroupVersionKind().Group, Version: "v1",
			Resource: strings.ToLower(obj.GetKind()) + "s",
		}
		obj.SetNamespace("")
		var api dynamic.ResourceInterface = objects.Resource(gvr).Namespace(namespace)
		if strings.HasPrefix(obj.GetKind(), "ClusterRole") {
			api = objects.Resource(gvr)
			obj.SetName(obj.GetName() + "-" + namespace)
			if name, ok, _ := unstructured.NestedString(obj.Object, "roleRef", "name"); ok {
				_ = unstructured.SetNestedField(obj.Object, name+"-"+namespace, "roleRef", "name")
			}
			s.t.Cleanup(func() {
				// the control plane ends, too
				_ = api.Delete(context.WithoutCancel(s.ctx), obj.GetName(), metav1.DeleteOptions{})
			})
		}
		if subjects, ok, _ := unstructured.NestedSlice(obj.Object, "subjects"); ok {
			subjects[0].(map[string]any)["namespace"] = namespace
			_ = unstructured.SetNestedSlice(obj.Object, subjects, "subjects")
		}
		if _, err := api.Create(s.ctx, obj, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
		var role rbacv1.Role // or a ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &role); err != nil {
			s.t.Fatal(err)
		}
		rules = append(rules, role.Rules...)
	}
	for _, rule := range rules {
		if len(rule.ResourceNames) == 0 {
			s.authorized(true, namespace, "fairlead-controller", rule.Verbs[0], rule.APIGroups[0], rule.Resources[0])
		}
	}
}

// authorized waits until the API server permits a service account of a namespace an action in it, or forbids it. The
// API server applies a new role after some time.
func (s *site) authorized(want bool, namespace, account, verb, group, resource string) {
	s.t.Helper()
	s.review(want, verb+" "+resource, authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + namespace + ":" + account, ResourceAttributes: reviewed(namespace, verb, group,
			resource),
	})
}

func reviewed(namespace, verb, group, resource string) *authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(resource, "/")
	return &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
	}
}

func (s *site) review(want bool, what string, spec authorizationv1.SubjectAccessReviewSpec) {
	s.t.Helper()
	reviews := kubernetes.NewForConfigOrDie(s.config).AuthorizationV1().SubjectAccessReviews()
	s.eventually(fmt.Sprintf("%s authorized: %t", what, want), func() bool {
		r, err := reviews.Create(s.ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err == nil && r.Status.Allowed == want
	})
}

func (s *site) eventually(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("never %s", what)
		}
	}
}
