package fairlead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// WithShards divides the objects of all clusters among the replicas of the program. The replicas are members of a
// group. Each watches, observes and reconciles its part, and hands slots over when another member joins or when it
// stops. The group is the Lease namespace/name of the first cluster and replaces leader election. change may set
// further options of package shard/group. The group refuses replicas of another program or with other namespaces. The
// import path of the main package identifies the program, or group.Options.Program does. A program that used leader
// election before names its old Lease in group.Options.Leader, so that the leader and the group never work at the same
// time.
//
//	fairlead.New(cfg, fairlead.WithShards("operators", "gateways", fairlead.ShardBy(shard.UID)))
//
// Objects are divided by namespace unless ShardBy says otherwise. A replica must see all objects that are related to
// its own objects. Reconcilers therefore watch related objects in all slots if these may be in another slot. This
// applies to reconcile.Owns for an object without a namespace, and to all related objects with ShardBy(shard.UID).
// Objects related across namespaces must be declared with cache.EverySlot. Sources of observers hold this replica's
// part, or all objects with cache.EverySlot.
//
// Functions added with Add run in every replica and are not bound to a slot; they use [Runtime.Shards] to check slots.
// Controllers must be declared before Run.
func WithShards(namespace, name string, change ...func(*group.Options)) Option {
	return func(o *options) {
		o.shards = &group.Options{Namespace: namespace, Name: name, Role: "reconcile", Events: true}
		for _, fn := range change {
			if fn != nil {
				fn(o.shards)
			}
		}
	}
}

// ShardBy sets the field by which WithShards divides objects. Division by UID spreads them evenly. Division by
// namespace, the default, keeps an object and the objects that it owns in one replica.
func ShardBy(by shard.By) func(*group.Options) {
	return func(o *group.Options) { o.Layout.By = by }
}

// sharing is the runtime's membership in a group.
type sharing struct {
	group   *group.Group
	sources *source.Sharding
	log     *slog.Logger
}

// newSharing returns the membership that the options ask for; nil without a configuration.
func newSharing(cfg *rest.Config, opts options) (*sharing, error) {
	o := *opts.shards
	if opts.lease != nil || opts.leadership != nil {
		return nil, errors.New("cannot share objects: replicas that do elect no leader: WithShards takes the place of " +
			"WithLeaderElection and WithLeadership")
	}
	if cfg == nil {
		return nil, nil // newHost reports it
	}
	if o.Logger == nil {
		o.Logger = opts.logger
	}
	if o.Program == "" {
		o.Program = mainPackage()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = opts.tracers
	}
	s := &sharing{log: opts.logger}
	notify := o.OnChange
	o.OnChange = func(c group.Change) {
		if c.Kind == group.Joined { // the member's slots are known from now on, possibly none
			_ = s.sources.Gain(context.Background(), s.sources.Layout().Set())
		}
		if notify != nil {
			notify(c)
		}
	}
	var err error
	if s.group, err = group.New(cfg, o); err != nil {
		return nil, err
	}
	s.sources = source.NewSharding(s.group.Layout())
	return s, nil
}

// page serves this member's view of the group.
func (s *sharing) page(w http.ResponseWriter, _ *http.Request) {
	st := s.group.Status()
	shown := struct {
		Member  string       `json:"member"`
		Held    string       `json:"held"`
		Renewed string       `json:"renewed,omitempty"` // how long ago
		Error   string       `json:"error,omitempty"`
		Group   group.Report `json:"group"`
	}{Member: st.Member, Held: st.Held.String(), Group: st.Group}
	if st.Age >= 0 {
		shown.Renewed = st.Age.String()
	}
	if st.Err != nil {
		shown.Error = st.Err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(shown) // an error means that the caller has disconnected
}

// waits returns the reason why this member holds no slots although it works correctly: a leader or a group with another
// layout is at work.
func (s *sharing) waits() error {
	if s == nil {
		return nil
	}
	if err := s.group.Status().Err; errors.Is(err, group.ErrLeader) || errors.Is(err, group.ErrLayout) {
		return err
	}
	return nil
}

// cover states what this replica works on, before hold: the kinds that it watches, by the rights that it needs.
// defaults are the options of all sources.
func (s *sharing) cover(clusters []*Host, defaults []cache.Option) {
	var c source.Config
	for _, o := range defaults {
		o(&c)
	}
	var kinds []string
	for _, cluster := range clusters {
		for _, r := range cluster.Rights() {
			if r.Kind != rights.LeaseKind && r.Subresource == "" && slices.Contains(r.Verbs, "watch") {
				kinds = append(kinds, r.Kind.GroupKind().String())
			}
		}
	}
	s.group.Cover(c.Namespaces, kinds, func() (map[string]int, shard.Set) {
		var all []*cache.Store
		for _, cluster := range clusters {
			all = append(all, cluster.Cache().Stores(schema.GroupVersionResource{})...)
		}
		return store.CountSlots(all...)
	})
	s.group.Ready(s.sources.Unready)
}

// mainPackage returns the import path of the main package, or the name of the executable if the path is not known.
func mainPackage() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" {
		return info.Path
	}
	return filepath.Base(os.Args[0])
}

// hold makes the participants and this process work on its slots. When ctx ends it hands the slots over before the work
// ends.
func (s *sharing) hold(
	ctx context.Context, participants []group.Participant, work func(context.Context) error,
) error {
	for _, p := range participants {
		s.group.Add(p)
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	member, leave := context.WithCancel(inherit.With(ctx, s.log))
	defer leave()
	var running sync.WaitGroup
	var failed error
	running.Go(func() {
		if failed = s.group.Run(member); failed != nil {
			failed = fmt.Errorf("cannot share objects: %w", failed)
			end(failed)
			return
		}
		end(context.Cause(member))
	})
	err := work(life)
	leave()
	running.Wait()
	return errors.Join(failed, ignoreEnd(life, err))
}
