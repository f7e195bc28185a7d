package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Labels of the pods of a domain.
const (
	domainLabel   = "example.fairlead.io/domain"
	revisionLabel = "example.fairlead.io/revision"
)

// packet is the packet of the flows of a domain.
type packet struct{ *reconcile.Task[Domain] }

func newPacket(_ context.Context, t *reconcile.Task[Domain]) (*packet, error) {
	return &packet{t}, nil
}

// server is the packet of the flow of one server.
type server struct {
	c      *client.Client
	domain *Domain
	pod    client.Key
}

func (p *packet) server(name string) *server {
	return &server{
		c: p.Client, domain: p.Object,
		pod: client.Key{Namespace: p.Object.Namespace, Name: p.Object.Name + "-" + name},
	}
}

// revision returns a hash of the fields that a pod is built from. Pods of another revision are replaced.
func revision(s DomainSpec) string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%q %q", s.Image, s.RestartVersion) // a hash never returns an error
	return fmt.Sprintf("%08x", h.Sum32())
}

// incomplete reports whether a server of the domain is not ready or has another revision, for example after its pod
// was deleted.
func incomplete(c *client.Client) func(context.Context, *Domain) (bool, error) {
	return func(ctx context.Context, d *Domain) (bool, error) {
		ready := 0
		for pod, err := range client.List[corev1.Pod](ctx, c, client.OwnedBy(d)) {
			if err != nil {
				return false, err
			}
			if pod.Labels[revisionLabel] == revision(d.Spec) && pod.DeletionTimestamp == nil && podReady(pod) {
				ready++
			}
		}
		return ready <= d.Spec.Servers, nil // +1 for the admin server
	}
}

// isReady reports whether a pod is ready and has the current revision.
func (s *server) isReady(pod *corev1.Pod) bool {
	return pod != nil && pod.Labels[revisionLabel] == revision(s.domain.Spec) && pod.DeletionTimestamp == nil &&
		podReady(pod)
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// get returns the pod of the server; nil if there is none.
func (s *server) get(ctx context.Context) (*corev1.Pod, error) {
	pod, err := client.Get[corev1.Pod](ctx, s.c, s.pod)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pod, err
}

// stopOld deletes the pod if it has another revision.
func (s *server) stopOld(ctx context.Context) error {
	pod, err := s.get(ctx)
	if err != nil || pod == nil || pod.Labels[revisionLabel] == revision(s.domain.Spec) {
		return err
	}
	return s.c.Delete(ctx, pod, client.SameUID(), client.IgnoreNotFound())
}

// start creates the pod. An existing pod was created before a restart: the name identifies the server, and stopOld
// has checked the revision.
func (s *server) start(ctx context.Context) error {
	if pod, err := s.get(ctx); err != nil || pod != nil {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.pod.Namespace, Name: s.pod.Name,
			Labels: map[string]string{domainLabel: s.domain.Name, revisionLabel: revision(s.domain.Spec)},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: group.String(), Kind: "Domain", Name: s.domain.Name, UID: s.domain.UID, Controller: new(true)},
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: s.domain.Spec.Image}}},
	}
	err := s.c.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// gone waits until there is no pod of another revision.
func (s *server) gone() flow.Wait {
	return client.When(s.c, s.pod, func(pod *corev1.Pod) (bool, error) {
		return pod == nil || pod.Labels[revisionLabel] == revision(s.domain.Spec), nil
	})
}

var errLost = errors.New("the pod was deleted by somebody else")

// ready waits until the pod is ready.
func (s *server) ready() flow.Wait {
	return client.When(s.c, s.pod, func(pod *corev1.Pod) (bool, error) {
		if pod == nil {
			return false, errLost
		}
		return s.isReady(pod), nil
	})
}

// readyTimeout bounds the start of a server.
const readyTimeout = 5 * time.Minute

// persist is the backoff of a step. The calls of a step have retries of their own.
var persist = flow.Backoff{Base: 200 * time.Millisecond, Max: 30 * time.Second}

// runServer updates one server to the revision of its domain. Each step checks the current state first, so it can be
// repeated after a restart.
var runServer = flow.New("server", serverSteps(func(s *server) *server { return s })...)

// serverSteps returns the steps of one server. of returns the server in the packet.
func serverSteps[P any](of func(*P) *server) []flow.Node[P] {
	return []flow.Node[P]{
		flow.Step("stop-old", flow.Do(func(ctx context.Context, p *P) error { return of(p).stopOld(ctx) }),
			flow.Retry(persist)),
		flow.Step("wait-gone", func(_ context.Context, f *flow.Fiber[P]) flow.Next {
			return f.Await(of(f.Packet).gone(), flow.Timeout(readyTimeout))
		}),
		flow.Step("start", flow.Do(func(ctx context.Context, p *P) error { return of(p).start(ctx) }), flow.Retry(persist)),
		flow.Step("wait-ready", func(_ context.Context, f *flow.Fiber[P]) flow.Next {
			return f.Await(of(f.Packet).ready(), flow.Timeout(readyTimeout)).Else("stop-old")
		}, flow.To("stop-old")),
	}
}
