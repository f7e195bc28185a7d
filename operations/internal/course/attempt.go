package course

import (
	"github.com/google/uuid"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// mostUnrecorded bounds the content of an operation, in bytes, whose first call may run unrecorded. The outcome of the
// call must still fit. etcd allows 1.5 MiB.
const mostUnrecorded = 32 << 10

// attemptIDs is the namespace of the ids of first attempts (UUIDs of version 5, RFC 9562).
var attemptIDs = uuid.MustParse("7a1c9c5e-0d52-4c86-9d7f-3f6f0a5f2b41")

// FirstAttempt returns the id of the first attempt of the first webhook of an operation. It is deterministic, so every
// executor computes the same id.
func FirstAttempt(op *v1alpha1.Operation) string {
	return uuid.NewSHA1(attemptIDs, []byte(string(op.UID)+"/"+op.EffectiveID()+"/"+op.Spec.WebhookIDs[0])).String()
}

// FirstTry reports whether a call is the first try of the first webhook of an operation and has not begun.
func FirstTry(op *v1alpha1.Operation, t record.Target) bool {
	ids := op.Spec.WebhookIDs
	return t.Purpose == record.Main && len(ids) > 0 && t.ID == ids[0] && record.Entry(&op.Status, t) == nil
}

// Light reports whether the content of an operation leaves enough room for an outcome.
func Light(op *v1alpha1.Operation) bool {
	n := 0
	for _, texts := range []map[string]string{op.Labels, op.Annotations} {
		for key, value := range texts {
			n += len(key) + len(value)
		}
	}
	if o := op.Spec.RequestObject; o != nil {
		if n += len(o.TenantID); o.Resource != nil {
			n += len(o.Resource.Raw)
		}
		for key, value := range o.Headers {
			n += len(key) + len(value)
		}
	}
	for _, r := range op.Spec.RelatedResources {
		n += len(r.ResourceType) + len(r.ResourceID)
	}
	return n+64*(len(op.OwnerReferences)+len(op.Finalizers)) <= mostUnrecorded
}
