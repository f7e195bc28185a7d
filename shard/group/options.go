package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/shard"
)

// maxWeight bounds Options.Weight.
const maxWeight = 1000

// maxDuration bounds Options.Duration, and how long an edit by hand of another member's Lease can delay its takeover.
const maxDuration = time.Minute

// Options configures a member. Namespace, Name and Role are required.
type Options struct {
	Namespace, Name string
	// Role is the purpose of the group in one word, such as "reconcile" or "watch". A member with another role is refused.
	Role string
	// Layout is how objects are divided. It takes effect when the last member with another layout has left.
	Layout shard.Layout
	// Member is the name of this member for people; the default is the host name. It need not be unique.
	Member string
	// Address is where others reach this member, such as "http://10.0.0.7:9090". Its Lease contains the address, and
	// [Group.Why] of the other members shows it. If empty, the Lease has none.
	Address string
	// Program identifies the program. The group refuses members of another program; see [Group.Cover]. If empty, the
	// member states neither program nor namespaces nor kinds, and every group accepts it.
	Program string
	// Weight is the share of this member, relative to the others; the default is 1 and the maximum 1000.
	Weight int
	// Leader is the name, in Namespace, of the Lease with which this program elects a leader when it does not share. The
	// group then holds it as "shards:Namespace/Name". If empty, there is no such Lease. Leader counts as part of the
	// layout.
	Leader string
	// Duration is how long other members respect a Lease without a renewal; the default is 15 s and the maximum one
	// minute. A member respects the Lease of another one for the longer of its own Duration and that of the Lease. Renew
	// is how long a member works after it sent its last successful renewal; the default is 8/15 of Duration. A member
	// sends a renewal every 2/15 of Duration, and twice as often while earlier ones have no response yet.
	//
	// The default of Renew, 8 s, is less than the 9 s for which members of the former release respect every Lease. They
	// may therefore be in the group during a roll-out. Responses may take Renew less one interval, 6 s.
	Duration, Renew, period time.Duration
	// Drain bounds [Participant].Lose when the member leaves; the default is 10 s. A slot that moves while the member
	// stays has 10 minutes, since rebalancing is not urgent.
	Drain time.Duration
	// format is the newest format of a record that the member reads. The default is recordFormat.
	format int
	// balance is the time between changes of the boundaries. The default is balanceInterval.
	balance time.Duration
	// Events enables Kubernetes Events about the Lease of the group. The member then needs permission to create events in
	// the namespace. Their rate is limited, and excess Events are dropped.
	Events bool
	// OnChange is called for each change that is logged, from any goroutine. It must not block. It may call the methods of
	// the Group.
	OnChange func(Change)
	// TracerProvider is for spans of the requests about the Leases of the group. Only failed requests and those of at
	// least a second have spans. By default there are none.
	TracerProvider trace.TracerProvider
	// Logger logs each change. The default is that of the fairlead runtime that runs Run, or none.
	Logger *slog.Logger
}

// complete checks the options and sets the defaults.
func (o *Options) complete() error {
	if o.Namespace == "" || o.Name == "" || o.Role == "" {
		return errors.New("it needs a namespace, a name and a role")
	}
	if errs := validation.IsDNS1123Label(o.Name); len(errs) > 0 { // it is also a label value
		return fmt.Errorf("its name is %q: %s", o.Name, strings.Join(errs, ", "))
	}
	if o.Leader == o.Name {
		return errors.New("the Lease of the leader has the name of the group")
	}
	if err := o.Layout.Check(); err != nil {
		return err
	}
	if o.Weight == 0 {
		o.Weight = 1
	}
	if o.Weight < 0 || o.Weight > maxWeight {
		return fmt.Errorf("it has weight %d: want at most %d", o.Weight, maxWeight)
	}
	if o.Member == "" {
		o.Member, _ = os.Hostname()
	}
	o.Duration = cmp.Or(max(o.Duration, 0), 15*time.Second)
	o.Renew = cmp.Or(max(o.Renew, 0), o.Duration*8/15)
	o.period = cmp.Or(max(o.period, 0), o.Duration*2/15)
	o.format = cmp.Or(o.format, recordFormat)
	o.balance = cmp.Or(o.balance, balanceInterval)
	o.Drain = cmp.Or(max(o.Drain, 0), 10*time.Second)
	if o.Duration > maxDuration {
		return fmt.Errorf("its lease duration is %v: want at most %v", o.Duration, maxDuration)
	}
	if o.period*2 > o.Renew || o.Renew*5/4 > o.Duration {
		return fmt.Errorf(
			"the renew interval %v, the renew deadline %v and the lease duration %v are too close to each other",
			o.period, o.Renew, o.Duration)
	}
	return nil
}

// Participant works on the slots of its member. Its methods may be called concurrently, for different slots. A panic in
// them ends Run.
type Participant interface {
	// Gain begins to work on slots. It should return soon, and start long work in the background. If it returns an error,
	// it is called again with back-off. ctx ends when the member has lost the slots.
	Gain(ctx context.Context, slots shard.Set) error
	// Lose ends the work on slots for which Gain was called or was about to be called. It starts no new work on them,
	// waits for the running work, and cancels that when ctx ends. Lose returns when no work on the slots runs any more.
	// The cause of ctx is ErrMoved after 10 minutes, and after Options.Drain if the member leaves. It is ErrLost if Fence
	// already refuses the slots.
	//
	// quiet reports that no work runs any more on some of the slots, so that another member gets them at once. Lose need
	// not call it. The member keeps a slot until Lose has returned or has called quiet for it, without a time limit.
	Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set))
}
