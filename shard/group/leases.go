package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// Label is the label of the Leases of a group and of its members; its value is the name of the group.
const Label = "fairlead.io/shard-group"

// The annotations.
const (
	recordAnnotation  = "fairlead.io/shard-record" // of the group: see record
	roleAnnotation    = "fairlead.io/shard-role"   // of the group: Options.Role
	groupAnnotation   = "fairlead.io/shard-group-uid"
	addressAnnotation = "fairlead.io/shard-address" // of a member: Options.Address
	deadAnnotation    = "fairlead.io/shard-dead"    // of a member: which member marked it dead
)

type lease = coordinationv1.Lease

// leases sends the requests for Leases of one namespace, each with a timeout. Writes name the uid and the version that
// they replace. Without the uid, an API server would create a deleted Lease again.
type leases struct {
	client    typed.CoordinationV1Interface
	namespace string
	timeout   time.Duration
	tracer    trace.Tracer // nil: no spans
	member    string
}

// verbs maps the words of messages to API verbs where they differ.
var verbs = map[string]string{"read": "get", "write": "update"}

func (l leases) within(ctx context.Context, verb, name string, send func(context.Context) error) error {
	begun := time.Now()
	short, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := send(short)
	if !isExpected(err) && !errors.Is(ctx.Err(), context.Canceled) {
		tracing.LeaseRequest(ctx, l.tracer, cmp.Or(verbs[verb], verb), l.namespace+"/"+name, l.member, begun, err)
	}
	switch {
	case err == nil:
		return nil
	case lacksRight(err):
		err = fmt.Errorf("%w in namespace %s, which need the rule %s: %w", ErrForbidden, l.namespace, leaseRule(), err)
	case apierrors.IsUnauthorized(err):
		err = fmt.Errorf("%w: %w", ErrForbidden, err)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		err = fmt.Errorf("%w: %w", errConflict, err)
	}
	return fmt.Errorf("cannot %s the Lease %s/%s: %w", verb, l.namespace, name, err)
}

// lacksRight distinguishes a missing permission from a refusal by a quota or by a terminating namespace.
func lacksRight(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) &&
		!strings.Contains(err.Error(), "exceeded quota")
}

// isExpected reports whether a request failed as in normal operation: another client wrote first, or there is no Lease.
func isExpected(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

func (l leases) get(ctx context.Context, name string) (got *lease, err error) {
	err = l.within(ctx, "read", name, func(ctx context.Context) error {
		got, err = l.client.Leases(l.namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return got, err
}

// list returns all Leases of a group, and the resource version of the list.
func (l leases) list(ctx context.Context, group string) (items []lease, version string, err error) {
	err = l.within(ctx, "list", group, func(ctx context.Context) error {
		got, err := l.client.Leases(l.namespace).List(ctx, metav1.ListOptions{LabelSelector: Label + "=" + group})
		if err == nil {
			items, version = got.Items, got.ResourceVersion
		}
		return err
	})
	return items, version, err
}

func (l leases) create(ctx context.Context, o *lease) (got *lease, err error) {
	err = l.within(ctx, "create", o.Name, func(ctx context.Context) error {
		got, err = l.client.Leases(l.namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	return got, err
}

func (l leases) put(ctx context.Context, o *lease) (got *lease, err error) {
	if o.UID == "" || o.ResourceVersion == "" {
		return nil, errors.New("cannot write a Lease that was not read")
	}
	err = l.within(ctx, "write", o.Name, func(ctx context.Context) error {
		got, err = l.client.Leases(l.namespace).Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
	return got, err
}

// remove deletes a Lease of the given version, or of any version if it is "". A missing Lease is not an error.
func (l leases) remove(ctx context.Context, name string, uid types.UID, version string) error {
	p := &metav1.Preconditions{UID: &uid}
	if version != "" {
		p.ResourceVersion = &version
	}
	err := l.within(ctx, "delete", name, func(ctx context.Context) error {
		return l.client.Leases(l.namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: p})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// annotate sets an annotation of a Lease.
func annotate(l *lease, key, value string) {
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[key] = value
}
