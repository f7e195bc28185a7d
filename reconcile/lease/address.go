package lease

import (
	"context"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// addressAnnotation has the address of the holder of a Lease: its identity, a space, and Options.Address. A holder
// without an address keeps the annotation of its predecessor, which the identity reveals.
const addressAnnotation = "fairlead.io/leader-address"

// addressed sends the requests of the election. It writes the address of this process into the Lease when this process
// is the holder, and records the address of any holder. It is safe for concurrent use.
type addressed struct {
	typed.LeasesGetter
	identity, address string

	mu sync.Mutex
	of string // the last annotation seen
}

// holder returns the address of a holder, or "" if it is not known.
func (a *addressed) holder(identity string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	of, address, _ := strings.Cut(a.of, " ")
	if identity == "" || of != identity {
		return ""
	}
	return address
}

// Leases implements typed.LeasesGetter.
func (a *addressed) Leases(namespace string) typed.LeaseInterface {
	return addressedLeases{a.LeasesGetter.Leases(namespace), a}
}

type addressedLeases struct {
	typed.LeaseInterface
	a *addressed
}

// signed adds the address of this process to a Lease that this process holds. It returns a copy.
func (l addressedLeases) signed(o *coordinationv1.Lease) *coordinationv1.Lease {
	holder := o.Spec.HolderIdentity
	if l.a.address == "" || holder == nil || *holder != l.a.identity {
		return o
	}
	o = o.DeepCopy()
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[addressAnnotation] = l.a.identity + " " + l.a.address
	return o
}

func (l addressedLeases) saw(o *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err == nil {
		l.a.mu.Lock()
		defer l.a.mu.Unlock()
		l.a.of = o.Annotations[addressAnnotation]
	}
	return o, err
}

func (l addressedLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return l.saw(l.LeaseInterface.Get(ctx, name, o))
}

func (l addressedLeases) Create(
	ctx context.Context, o *coordinationv1.Lease, opts metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	return l.saw(l.LeaseInterface.Create(ctx, l.signed(o), opts))
}

func (l addressedLeases) Update(
	ctx context.Context, o *coordinationv1.Lease, opts metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	return l.saw(l.LeaseInterface.Update(ctx, l.signed(o), opts))
}
