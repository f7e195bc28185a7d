package source_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/shard"
)

// sharded is a recorder that holds slots.
type sharded struct{ *recorder }

func (r sharded) sink(string) source.Sink { return r }

func (r sharded) Hold(set shard.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, o := range r.objects {
		if !set.Has("ns", types.UID(o.uid)) {
			delete(r.objects, key)
		}
	}
	r.note("HOLD %s", set)
}

func (r sharded) Gain(shard.Set) source.Replacement { return &gaining{staged: r.Replace().(*staged)} }

// gaining adds the objects that it stages.
type gaining struct{ *staged }

func (g *gaining) Missing() (missing, known int) { return 0, 0 }

func (g *gaining) Commit(c source.Commit) {
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	g.end()
	for key, o := range g.objects {
		g.r.objects[key] = o
	}
	g.r.note("GAIN %s %d", c.Version, len(g.objects))
}

// TestOldChangesOfASlotAreDropped: a watch delivers old changes of a gained slot after it has passed the version of the
// slot's list. The sink does not get them.
func TestOldChangesOfASlotAreDropped(t *testing.T) {
	t.Parallel()
	layout := shard.Layout{By: shard.UID, Slots: 2}
	var names [2]string
	for i := 0; names[0] == "" || names[1] == ""; i++ {
		name := fmt.Sprint(i * 1000003)
		names[layout.SlotOf("", types.UID("u-"+name))] = name
	}
	here, there := names[0], names[1]
	r := sharded{newRecorder(t)}
	s := serve(t, []reply{
		list(5, object(here, 4)), list(9, object(there, 8), object(here, 4)),
		list(11, object(here, 10)), // for a source that suspects a rollback of history
	}, []reply{
		watch(event("MODIFIED", object(there, 6)), event("ADDED", object("none", 6))),
		watch(event("MODIFIED", object(here, 10)), event("MODIFIED", object(there, 7)), event("MODIFIED", object(there, 11))),
	})
	h := source.NewSharding(layout)
	if err := h.Set(layout.Set(0)); err != nil {
		t.Fatal(err)
	}
	src, err := source.New(source.Config{
		REST: &rest.Config{Host: s.server.URL}, Resource: configMaps, Sharding: h, NoWatchList: true,
		BackoffBase: time.Millisecond,
	}, r.sink)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- src.Run(ctx) }()
	eventually(t, "what is filtered", func() bool { return src.Status()[0].Counters.FilteredEvents > 0 })
	if err := h.Set(layout.All()); err != nil {
		t.Fatal(err)
	}
	r.wait("the last change", func() bool { return slices.Contains(r.log, "MODIFIED ns/"+there+" 11") })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var got []string
	for _, line := range r.lines() {
		if !strings.HasPrefix(line, "STATUS") && !strings.HasPrefix(line, "ADDED") {
			got = append(got, line)
		}
	}
	want := []string{
		"HOLD 0", "COMMIT 5 1", "HOLD 0-1", "GAIN 9 1", "MODIFIED ns/" + here + " 10", "MODIFIED ns/" + there + " 11",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the sink got %q, want %q", got, want)
	}
}

// TestRepairListsGainedSlotsConsistently: a gained slot needs a consistent list. A list at the version seen may be
// older than the writes of the former holder.
func TestRepairListsGainedSlotsConsistently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := watchSlots(t, selecting{honour: true}, apiserver.Options{})
		s.hold(0)
		s.requests()
		initial := func(r apiserver.Request) bool { return r.Query.Has("sendInitialEvents") }
		s.server.On(apiserver.Match{Func: initial}, apiserver.BlackHole())
		s.put(2, "o0", "so that the version seen is old")
		s.server.Compact(0)
		s.server.DropConnections()
		<-time.After(10 * time.Second) // the list at the version seen hangs
		all := s.server.Log().Requests
		if last := all[len(all)-1]; !initial(last) || last.Query.Get("resourceVersion") == "" {
			t.Fatalf("the last request is %v", last.Query)
		}
		s.server.ClearFaults()
		s.hold(0, 1)
		if got := s.requests(); !slices.Equal(got[len(got)-1:], []string{"watch of [0 1] with initial events"}) {
			t.Errorf("requests %v", got)
		}
		s.check()
	})
}

// TestBarrierOfSlots: a barrier on a server that ignores selectors does not wait for objects of other slots.
func TestBarrierOfSlots(t *testing.T) {
	t.Parallel()
	for _, how := range selectings {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := watchSlots(t, how, apiserver.Options{BookmarkInterval: time.Hour})
				s.hold(0)
				for slot := range 4 {
					s.put(slot, "o0", "changed")
				}
				begin := time.Now()
				if err := s.Store.Barrier(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("the barrier took %v", took)
				}
				s.check()
			})
		})
	}
}

// TestRefusedSelectorIsRetried: a refused selector is sent again later, but not with each request.
func TestRefusedSelectorIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := watchSlots(t, selecting{refuse: http.StatusBadRequest}, apiserver.Options{}, func(c *source.Config) {
			c.MaxWatch = 24 * time.Hour // only the source ends watches
		})
		s.hold(0)
		s.hold(0, 1)
		s.hold(1)
		refused := func() int { return s.server.Log().Count(apiserver.Match{Func: selects}) }
		if n := refused(); n != 1 {
			t.Errorf("the selector was refused %d times", n)
		}
		<-time.After(11 * time.Minute)
		s.hold(2)
		if n := refused(); n < 2 {
			t.Errorf("the selector was refused %d times", n)
		}
		s.server.On(apiserver.Match{Verb: "list"}, apiserver.Answer(apiserver.Failure(http.StatusInternalServerError)))
		<-time.After(11 * time.Minute)
		before := refused()
		if err := s.sharding.Set(fourSlots.Set(3)); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		if st := s.status(); st.Phase != source.Degraded || st.Reason != source.ReasonServerError {
			t.Errorf("status %+v", st)
		}
		if refused() <= before {
			t.Error("a failure with another cause counts against the selector")
		}
		s.server.ClearFaults()
		s.hold(3)
		s.check()
	})
}
