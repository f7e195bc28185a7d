package fairlead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// WithShards has the replicas of the program share the objects, of all clusters, as members of a group: each watches,
// observes and reconciles its part, and hands it over when another one comes, or when it stops. The group is the Lease
// namespace/name of the first cluster; it takes the place of an election. Options of package shard/group can be
// changed: who has elected a leader before names its Lease as group.Options.Leader, so that both are never at work.
//
//	fairlead.New(cfg, fairlead.WithShards("operators", "gateways", fairlead.ShardBy(shard.UID)))
//
// Objects are divided by their namespaces unless ShardBy says otherwise. What belongs to an object has to be found
// where that is: reconcilers watch what concerns their objects, and may be elsewhere, as a whole (reconcile.Owns of an
// object without a namespace, and everything where objects are divided by their uids), and what concerns objects of
// other namespaces has to be declared with cache.EverySlot. Sources of observers hold this replica's part, or with
// cache.EverySlot everything.
//
// What is added with Add runs in every replica. Nothing of it is bound to a slot: ask [Runtime.Shards]. Controllers are
// declared before Run.
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

// ShardBy says, to WithShards, by which field objects are divided. By their uid they are spread evenly; by their
// namespace, the default, an object and what it owns are in one replica.
func ShardBy(by shard.By) func(*group.Options) {
	return func(o *group.Options) { o.Layout.By = by }
}

// sharing is the part of a runtime in a group.
type sharing struct {
	group   *group.Group
	sources *source.Sharding
}

// share makes the runtime a member of a group.
func (rt *Runtime) share(cfg *rest.Config) error {
	o := *rt.opts.shards
	if rt.opts.lease != nil || rt.opts.leadership != nil {
		return errors.New("cannot share objects: replicas that do elect no leader: WithShards takes the place of " +
			"WithLeaderElection and WithLeadership")
	}
	if cfg == nil {
		return nil // which is told elsewhere
	}
	if o.Logger == nil {
		o.Logger = rt.log
	}
	if o.TracerProvider == nil {
		o.TracerProvider = rt.opts.tracers
	}
	s := &sharing{}
	told := o.OnChange
	o.OnChange = func(c group.Change) {
		if c.Kind == group.Joined { // what it holds is known from now on, if it is nothing
			_ = s.sources.Gain(context.Background(), s.sources.Layout().Set())
		}
		if told != nil {
			told(c)
		}
	}
	var err error
	if s.group, err = group.New(cfg, o); err != nil {
		return err
	}
	s.sources = source.NewSharding(s.group.Layout())
	rt.sharing = s
	rt.opts.source = append(slices.Clip(rt.opts.source), source.ShardWith(s.sources))
	rt.Handle("/debug/shards", http.HandlerFunc(s.page))
	return rt.opts.registry.Register(s.group.Collector())
}

// Shards returns the member of WithShards that this runtime is, to ask which slots it holds, and whether something may
// still be sent for one; nil without.
func (rt *Runtime) Shards() *group.Group {
	if rt.sharing == nil {
		return nil
	}
	return rt.sharing.group
}

// page shows what this member knows of the group.
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
	_ = json.NewEncoder(w).Encode(shown) // the caller is gone if this fails
}

// waits says why this member may hold nothing yet, although all is well: others of another kind are at work.
func (s *sharing) waits() error {
	if s == nil {
		return nil
	}
	if err := s.group.Status().Err; errors.Is(err, group.ErrLeader) || errors.Is(err, group.ErrLayout) {
		return err
	}
	return nil
}

// workShared works on what this process holds. When ctx ends that is handed over before the work ends.
func (rt *Runtime) workShared(ctx context.Context) error {
	g := rt.sharing.group
	for _, c := range rt.members() {
		g.Add(c.observers)
	}
	g.Add(rt.sharing.sources)
	for _, c := range rt.overseen() {
		g.Add(c)
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	taking, leave := context.WithCancel(inherit.With(ctx, rt.log))
	defer leave()
	defer context.AfterFunc(ctx, func() { rt.phase.Store(phaseStopping) })()
	var taken sync.WaitGroup
	var failed error
	taken.Go(func() {
		if failed = g.Run(taking); failed != nil {
			failed = fmt.Errorf("cannot share objects: %w", failed)
			end(failed)
			return
		}
		end(context.Cause(taking))
	})
	err := rt.work(life, rt.opts.drain)
	leave()
	taken.Wait()
	return errors.Join(failed, ignoreEnd(life, err))
}
