package executor

import (
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/flow"
)

// errEnded says that Run has returned.
var errEnded = errors.New("the executor has ended")

// errMoved is the cause with which the flows of a leaving slot end. They continue in another replica.
var errMoved = fmt.Errorf("the operation goes on in another replica: %w", flow.ErrMoved)

// errOutdatedCRD reports that the API server does not store the key of a call.
var errOutdatedCRD = errors.New("the CustomResourceDefinition " + crdName +
	" is older than this program: it has no field idempotencyKey in status.webhooks, " +
	"so no call can be made; install that of this version (fairlead crds | kubectl apply --server-side -f -)")

const crdName = "operations.fairlead.io"
