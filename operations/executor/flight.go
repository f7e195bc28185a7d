package executor

import (
	"context"
	"time"

	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// flight is one try or poll under way. It runs in its own goroutine, so other calls and operations do not wait for
// it. It wakes the run when it returns.
type flight struct {
	target    record.Target
	operation string // its id
	attempt   string
	since     time.Time
	hook      *webhook.Compiled
	permit    *webhook.Permit
	cancel    context.CancelCauseFunc
}

// returnedCall is a flight that has returned.
type returnedCall struct {
	flight *flight
	result webhook.Result
}

// refusal is the reason why a call waits: for its turn, or until its Webhook is compiled.
type refusal struct {
	call   string             // idempotency key; empty: the endpoint was not asked
	until  time.Time          // when to ask again; zero: now
	share  string             // the share that the namespace has used up; empty: none
	reason webhook.WaitReason // why the endpoint is not called; empty: not refused by the endpoint
	since  time.Time          // of the first refusal for this reason
}
