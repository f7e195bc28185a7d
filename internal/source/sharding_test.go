package source_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/watchtest"
	"github.com/fairlead-io/fairlead/shard"
)

// TestWaitForSlots: the error names the scope that is behind. Losing a slot does not wait for gained slots.
func TestWaitForSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := watchSlots(t, selecting{honour: true}, apiserver.Options{}, byLists)
		s.hold(0)
		s.server.On(apiserver.Match{Verb: "list"}, apiserver.Answer(apiserver.Failure(403)))
		if err := s.sharding.Set(fourSlots.Set(1)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.sharding.WaitLeft(ctx); err != nil {
			t.Error(err)
		}
		err := s.sharding.Wait(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "configmaps (Degraded: Forbidden") {
			t.Errorf("error %v", err)
		}
		s.server.ClearFaults()
		if err := s.sharding.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.sharding.Set((shard.Layout{Slots: 8}).Set(1)); err == nil {
			t.Error("slots of another layout are accepted")
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		_ = s.sharding.Set(fourSlots.Set(0, 1))
		if err := s.sharding.Wait(t.Context()); err != nil { // no source is attached
			t.Error(err)
		}
	})
}

// TestUnreadySlots: a slot is not ready until it is listed. The reason names a refusal, and is empty during a list. A
// resource that is not served needs no list. Slots that were listed before stay ready.
func TestUnreadySlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := watchSlots(t, selecting{honour: true}, apiserver.Options{}, byLists)
		check := func(reason string, want ...int) {
			t.Helper()
			synctest.Wait()
			slots, got := s.sharding.Unready()
			if slots != fourSlots.Set(want...) || (reason == "") != (got == "") || !strings.Contains(got, reason) {
				t.Errorf("slots %s are not ready because of %q, want %v because of %q", slots, got, want, reason)
			}
		}
		s.hold(0)
		check("")
		s.server.On(apiserver.Match{Verb: "list"}, apiserver.Delay(10*time.Minute)) // the list takes its time
		if err := s.sharding.Gain(t.Context(), fourSlots.Set(1, 2)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		check("", 1, 2)
		s.server.ClearFaults()
		s.hold(0)
		for code, reason := range map[int]string{403: "configmaps (Degraded: Forbidden", 404: ""} {
			s.server.On(apiserver.Match{Verb: "list"}, apiserver.Answer(apiserver.Failure(code)))
			if err := s.sharding.Gain(t.Context(), fourSlots.Set(1, 2)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if reason == "" {
				check(reason)
			} else {
				check(reason, 1, 2)
			}
			s.server.ClearFaults()
			s.hold(0, 1, 2)
			check("")
			s.hold(0)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		_ = s.sharding.Set(fourSlots.Set(0, 3))
		check("") // no source is attached
	})
}

// TestShardingGainsAndLosesSlots: slots are gained and lost one by one, and lost slots are removed from the store.
func TestShardingGainsAndLosesSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := watchSlots(t, selecting{honour: true}, apiserver.Options{})
		s.put(0, "a", "1")
		s.put(1, "b", "1")
		var all sync.WaitGroup
		for slot := range 3 {
			all.Go(func() {
				if err := s.sharding.Gain(t.Context(), fourSlots.Set(slot)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if held := s.sharding.Held(); held != fourSlots.Set(0, 1, 2) {
			t.Errorf("held: %s", held)
		}
		if err := s.sharding.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.events()
		s.sharding.Lose(t.Context(), fourSlots.Set(1, 3), nil)
		if held := s.sharding.Held(); held != fourSlots.Set(0, 2) {
			t.Errorf("held: %s", held)
		}
		s.expect("what is told when Lose has returned", s.events(),
			[]string{"LEFT 1/b", "LEFT 1/o0", "LEFT 1/o1", "LEFT 1/o2"})
	})
}

// TestInvalidSlots: invalid slots are an error of New. A sink that cannot hold slots is an error of Run.
func TestInvalidSlots(t *testing.T) {
	t.Parallel()
	set := fourSlots.Set(0)
	none := fourSlots.Set()
	for _, tc := range []struct {
		reason string
		cfg    source.Config
	}{
		{"Both slots and a Sharding.", source.Config{Shard: &set, Sharding: source.NewSharding(fourSlots)}},
		{"An invalid number of slots.", source.Config{Sharding: source.NewSharding(shard.Layout{Slots: 3})}},
	} {
		tc.cfg.Resource, tc.cfg.REST = configMaps, &rest.Config{Host: serve(t, nil, nil).server.URL}
		if _, err := source.New(tc.cfg, newRecorder(t).sink); err == nil {
			t.Errorf("%s There is no error", tc.reason)
		}
	}
	config := &rest.Config{Host: serve(t, nil, nil).server.URL}
	src, err := source.New(source.Config{Resource: configMaps, REST: config, Shard: &none}, newRecorder(t).sink)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "source.Sharded") {
		t.Errorf("error %v", err)
	}
}

// TestRegainedSlotIsListedAgain loses and gains slots before the source has noticed. Another holder may have
// written meanwhile. The objects leave, and come back with a consistent list.
func TestRegainedSlotIsListedAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason      string
		held, stays []int
		events      []string
	}{
		{"One of two.", []int{0, 1}, []int{0}, []string{
			"ADDED 1/o0 initial", "ADDED 1/o1 initial", "ADDED 1/o2 initial", "LEFT 1/o0", "LEFT 1/o1", "LEFT 1/o2",
		}},
		{"All.", []int{1}, nil, []string{
			"ADDED 1/o0 initial", "ADDED 1/o1 initial", "ADDED 1/o2 initial", "LEFT 1/o0", "LEFT 1/o1", "LEFT 1/o2",
		}},
	} {
		for _, how := range selectings[:2] {
			t.Run(tc.reason+" "+how.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := watchSlots(t, how, apiserver.Options{BookmarkInterval: time.Hour})
					s.hold(tc.held...)
					s.events()
					watch := s.server.HoldEvents(apiserver.Match{Verb: "watch"}) // the cached state is old
					s.put(1, "o0", "changed by another holder")
					if err := s.sharding.Set(fourSlots.Set(tc.stays...)); err != nil {
						t.Fatal(err)
					}
					s.hold(tc.held...)
					s.expect("events", s.events(), tc.events)
					u, err := s.server.Object(configMaps, inSlot(1), "o0")
					if err != nil {
						t.Fatal(err)
					}
					if !slices.ContainsFunc(s.rec.Recording().Events, func(e watchtest.Event) bool {
						return e.Key == inSlot(1)+"/o0" && e.Object.Version == u.GetResourceVersion()
					}) {
						t.Error("the list lacks the writes of the other holder")
					}
					watch.Release()
					s.check()
				})
			})
		}
	}
}
