package call

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/binding"
)

// waits records that a call will be retried.
func (x *exchange) waits(o outcome) {
	if w := x.p.Waiting; w != nil {
		r := &binding.Retried{Err: x.error(nil), Since: x.begun, Until: time.Now().Add(o.after)}
		x.told = r
		w.Begin(r)
	}
}

// over removes the record of this call, unless another call has replaced it.
func (x *exchange) over() {
	if x.told != nil {
		x.p.Waiting.End(x.told)
	}
}
