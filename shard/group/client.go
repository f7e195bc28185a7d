package group

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// Label is the label of the Leases of a group and of its members; its value is the name of the group.
const Label = "fairlead.io/shard-group"

// The annotations.
const (
	recordAnnotation = "fairlead.io/shard-record" // of the group: see record
	roleAnnotation   = "fairlead.io/shard-role"   // of the group: Options.Role
	// of the group: it replaces another one, and its record has not been founded since
	recreatedAnnotation = "fairlead.io/shard-recreated"
	groupAnnotation     = "fairlead.io/shard-group-uid"
	addressAnnotation   = "fairlead.io/shard-address"  // of a member: Options.Address
	deadAnnotation      = "fairlead.io/shard-dead"     // of a member: which member marked it dead
	coverageAnnotation  = "fairlead.io/shard-coverage" // of a member: see coverage
	loadAnnotation      = "fairlead.io/shard-load"     // of a member: of Cover
	formatAnnotation    = "fairlead.io/shard-format"   // of a member: the newest format of a record that it reads
	histogramAnnotation = "fairlead.io/shard-objects"  // of a member: see histogram
	holdingsAnnotation  = "fairlead.io/shard-slots"    // of a member: see holdings
	readyAnnotation     = "fairlead.io/shard-ready"    // of a member: see readySlots
)

type lease = leasing.Lease

// newClient returns a client whose errors match ErrForbidden if the program lacks permissions.
func newClient(cfg *rest.Config, namespace string, timeout time.Duration) (*leasing.Client, error) {
	c, err := leasing.NewClient(cfg, namespace, timeout)
	if err != nil {
		return nil, err
	}
	c.Explain = func(err error) error {
		switch {
		case lacksRight(err):
			return fmt.Errorf("%w in namespace %s, which need the rule %s: %w", ErrForbidden, namespace, leaseRule(), err)
		case apierrors.IsUnauthorized(err):
			return fmt.Errorf("%w: %w", ErrForbidden, err)
		}
		return err
	}
	return c, nil
}

// lacksRight distinguishes a missing permission from a refusal by a quota or by a terminating namespace.
func lacksRight(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) &&
		!strings.Contains(err.Error(), "exceeded quota")
}
