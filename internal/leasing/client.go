package leasing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/tracing"
)

// Lease is the object in the API server.
type Lease = coordinationv1.Lease

// ErrConflict means that another client wrote the Lease first. The caller reads it again and decides again.
var ErrConflict = errors.New("another client wrote first")

// Client sends the requests for Leases of one namespace. It is safe for concurrent use.
type Client struct {
	// Tracer is for spans of requests that fail or take at least a second; nil: no spans. Conflicts and missing Leases
	// are no failures. Identity is in the spans.
	Tracer   trace.Tracer
	Identity string
	// Explain may add advice to the error of a request; nil: no advice.
	Explain func(error) error

	namespace string
	leases    typed.LeaseInterface
	timeout   time.Duration
	conn      *connection.Conn
}

// ping is the silence after which the connection is checked. A dead connection closes after 3 s at the latest, so that
// a renewal after that arrives before the hold expires.
const ping = time.Second

// NewClient returns a Client whose requests take at most timeout, or the timeout of cfg if that is less. It has a
// connection of its own without a rate limit: requests are few, and a renewal must not wait for others. The caller must
// close the Client.
func NewClient(cfg *rest.Config, namespace string, timeout time.Duration) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.Timeout > 0 {
		timeout = min(timeout, cfg.Timeout)
	}
	cfg.QPS, cfg.Timeout = -1, 0
	conn, err := connection.New(cfg, connection.Options{Ping: ping})
	if err != nil {
		return nil, err
	}
	c, err := typed.NewForConfigAndClient(cfg, &http.Client{Transport: conn})
	if err != nil {
		return nil, err
	}
	return &Client{namespace: namespace, leases: c.Leases(namespace), timeout: timeout, conn: conn}, nil
}

// Close closes the connection when no request uses it. A later request opens one that closes with it.
func (c *Client) Close() { c.conn.Close() }

// WithTimeout returns a copy of c with another timeout.
func (c *Client) WithTimeout(d time.Duration) *Client {
	other := *c
	other.timeout = d
	return &other
}

// Describe returns the namespace and name of a Lease.
func (c *Client) Describe(name string) string { return c.namespace + "/" + name }

// do sends one request. verb is the verb of the API.
func do[T any](ctx context.Context, c *Client, verb, name string, send func(context.Context) (T, error)) (T, error) {
	begun := time.Now()
	short, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	got, err := send(short)
	conflict := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	if !conflict && !apierrors.IsNotFound(err) && !errors.Is(ctx.Err(), context.Canceled) {
		tracing.LeaseRequest(ctx, c.Tracer, verb, c.Describe(name), c.Identity, begun, err)
	}
	switch {
	case err == nil:
		return got, nil
	case conflict:
		err = fmt.Errorf("%w: %w", ErrConflict, err)
	case c.Explain != nil:
		err = c.Explain(err)
	}
	if verb == "get" {
		verb = "read"
	}
	return got, fmt.Errorf("cannot %s the lease %s: %w", verb, c.Describe(name), err)
}

// Get returns a Lease.
func (c *Client) Get(ctx context.Context, name string) (*Lease, error) {
	return do(ctx, c, "get", name, func(ctx context.Context) (*Lease, error) {
		return c.leases.Get(ctx, name, metav1.GetOptions{})
	})
}

// List returns the Leases with a label.
func (c *Client) List(ctx context.Context, label, value string) (*coordinationv1.LeaseList, error) {
	return do(ctx, c, "list", value, func(ctx context.Context) (*coordinationv1.LeaseList, error) {
		return c.leases.List(ctx, metav1.ListOptions{LabelSelector: label + "=" + value})
	})
}

// Create creates a Lease.
func (c *Client) Create(ctx context.Context, l *Lease) (*Lease, error) {
	return do(ctx, c, "create", l.Name, func(ctx context.Context) (*Lease, error) {
		return c.leases.Create(ctx, l, metav1.CreateOptions{})
	})
}

// Update replaces the version of a Lease that l names. Without its uid, an API server would create a deleted Lease
// again.
func (c *Client) Update(ctx context.Context, l *Lease) (*Lease, error) {
	if l.UID == "" || l.ResourceVersion == "" {
		return nil, errors.New("cannot update a lease that was not read")
	}
	return do(ctx, c, "update", l.Name, func(ctx context.Context) (*Lease, error) {
		return c.leases.Update(ctx, l, metav1.UpdateOptions{})
	})
}

// Patch changes a Lease by a JSON patch. The error matches apierrors.IsInvalid if a test operation of it fails.
func (c *Client) Patch(ctx context.Context, name string, patch []byte) (*Lease, error) {
	return do(ctx, c, "patch", name, func(ctx context.Context) (*Lease, error) {
		return c.leases.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
	})
}

// Delete deletes a Lease of the given version, or of any version if it is "". A missing Lease is not an error.
func (c *Client) Delete(ctx context.Context, name string, uid types.UID, version string) error {
	p := &metav1.Preconditions{UID: &uid}
	if version != "" {
		p.ResourceVersion = &version
	}
	_, err := do(ctx, c, "delete", name, func(ctx context.Context) (any, error) {
		return nil, c.leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: p})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
