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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/watchtest"
	"github.com/fairlead-io/fairlead/shard"
)

// fourSlots shards by namespace.
var fourSlots = shard.Layout{Slots: 4}

// inSlot returns a namespace of a slot.
func inSlot(slot int) string {
	for i := 0; ; i++ {
		if ns := fmt.Sprint("ns", i); fourSlots.SlotOf(ns, "") == slot {
			return ns
		}
	}
}

// selecting is the behaviour of a server towards a shard selector.
type selecting struct {
	name   string
	honour bool
	refuse int
}

var selectings = []selecting{
	{name: "it is honoured", honour: true},
	{name: "it is ignored"},
	{name: "it is a mistake", refuse: http.StatusBadRequest},
	{name: "it is forbidden", refuse: http.StatusForbidden},
	{name: "it is a failure of the server", refuse: http.StatusInternalServerError},
}

// slots is a source of some slots on a server with one namespace for each slot.
type slots struct {
	*watchtest.Watched
	t        *testing.T
	server   *apiserver.Server
	sharding *source.Sharding
	rec      *watchtest.Recorder
	seen     int // number of requests that were returned
	returned int // number of events that were returned
}

func watchSlots(t *testing.T, how selecting, opt apiserver.Options, change ...func(*source.Config)) *slots {
	t.Helper()
	opt.Pipe, opt.ShardedListAndWatch = true, how.honour
	server, err := apiserver.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	if how.refuse != 0 {
		server.On(apiserver.Match{Func: selects}, apiserver.Answer(apiserver.Failure(how.refuse)))
	}
	s := &slots{t: t, server: server, sharding: source.NewSharding(fourSlots)}
	for slot := range 4 {
		if _, err := server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: inSlot(slot)}}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			s.put(slot, fmt.Sprint("o", i), "")
		}
	}
	cfg := source.Config{Resource: configMaps, Sharding: s.sharding, PageSize: 2}
	for _, f := range change {
		f(&cfg)
	}
	s.Watched = watchtest.Watch(t, server, cfg)
	s.rec = s.Record("all")
	return s
}

// byLists makes a source list pages instead of asking for initial events.
func byLists(c *source.Config) { c.NoWatchList = true }

func selects(r apiserver.Request) bool { return r.Query.Get("shardSelector") != "" }

func (s *slots) put(slot int, name, value string) {
	s.t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: inSlot(slot), Name: name}, Data: map[string]string{"v": value},
	}
	if _, err := s.server.Put(cm); err != nil {
		s.t.Fatal(err)
	}
}

func (s *slots) remove(slot int, name string) {
	s.t.Helper()
	if err := s.server.Remove(configMaps, inSlot(slot), name); err != nil {
		s.t.Fatal(err)
	}
}

// hold changes the slots and waits until the source is idle.
func (s *slots) hold(held ...int) {
	s.t.Helper()
	if err := s.sharding.Set(fourSlots.Set(held...)); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Hour)
	defer cancel()
	if err := s.sharding.Wait(ctx); err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

// events returns the events since the last call, without the order within a list.
func (s *slots) events() []string {
	synctest.Wait()
	all := s.rec.Recording().Events
	var out []string
	for _, e := range all[s.returned:] {
		text := e.Type.String()
		if e.Key != "" {
			ns, name, _ := strings.Cut(e.Key, "/")
			text += fmt.Sprintf(" %d/%s", fourSlots.SlotOf(ns, ""), name)
		}
		if e.Initial {
			text += " initial"
		}
		if e.Inferred {
			text += " inferred"
		}
		out = append(out, text)
	}
	s.returned = len(all)
	slices.Sort(out)
	return out
}

// requests returns the lists and watches that were answered since the last call.
func (s *slots) requests() []string {
	synctest.Wait()
	all := s.server.Log().Requests
	var out []string
	for _, r := range all[s.seen:] {
		if r.Code != http.StatusOK {
			continue
		}
		text := r.Verb
		if r.Resource != configMaps.Resource {
			text += " " + r.Resource
		}
		if r.Namespace != "" {
			text += " in " + r.Namespace
		}
		if r.Page > 1 {
			text += fmt.Sprint(" page ", r.Page)
		}
		for _, set := range [][]int{{0}, {1}, {2}, {3}, {0, 1}, {1, 2}, {1, 2, 3}, {2, 3}} {
			if r.Query.Get("shardSelector") == fourSlots.Set(set...).Selector() {
				text += fmt.Sprint(" of ", set)
			}
		}
		if v := r.Query.Get("resourceVersion"); v != "" {
			text += " from a version"
		}
		if r.Query.Has("sendInitialEvents") {
			text += " with initial events"
		}
		out = append(out, text)
	}
	s.seen = len(all)
	return out
}

func (s *slots) check() {
	s.t.Helper()
	synctest.Wait()
	for _, v := range s.Check() {
		s.t.Error(v)
	}
}

func (s *slots) expect(what string, got, want []string) {
	s.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (s *slots) counters() source.Counters { return s.Source.Status()[0].Counters }

// TestSlotsComeAndGo gains and loses slots on servers that honour, ignore or reject the selector. Kept slots are not
// listed again, gained slots are listed alone and consistently, and lost slots leave.
func TestSlotsComeAndGo(t *testing.T) {
	t.Parallel()
	for _, how := range selectings {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { comeAndGo(t, how, false) })
		})
		t.Run(how.name+", by lists", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { comeAndGo(t, how, true) })
		})
	}
}

func comeAndGo(t *testing.T, how selecting, lists bool) {
	s := watchSlots(t, how, apiserver.Options{}, func(c *source.Config) { c.NoWatchList = lists })
	if st := s.status(); st.Reason != source.ReasonNoSlots || st.Synced || len(s.requests()) > 0 {
		t.Errorf("before slots are known: %+v", st)
	}
	s.hold(0, 1)
	s.expect("first slots", s.events(), []string{
		"ADDED 0/o0 initial", "ADDED 0/o1 initial", "ADDED 0/o2 initial", "ADDED 1/o0 initial", "ADDED 1/o1 initial",
		"ADDED 1/o2 initial", "SYNCED",
	})
	of := func(text, set string) string {
		if how.refuse == 0 {
			return text + " of [" + set + "]"
		}
		return text
	}
	listed := func(set string, pages int) (out []string) {
		switch {
		case !lists && how.honour:
			return []string{of("watch", set) + " with initial events"}
		case !how.honour: // the version, the namespaces, and their objects
			in := "list in " + inSlot(2)
			return []string{of("list", "1 2"), "list namespaces", in + " from a version", in + " page 2"}
		}
		for page := range pages {
			text := "list"
			if page > 0 {
				text += fmt.Sprint(" page ", page+1)
			}
			out = append(out, of(text, set))
		}
		return out
	}
	if first := s.requests(); !lists {
		s.expect("requests", first, []string{of("watch", "0 1") + " with initial events"})
	}

	s.hold(1, 2)
	s.expect("one comes, one goes", s.events(), []string{
		"ADDED 2/o0 initial", "ADDED 2/o1 initial", "ADDED 2/o2 initial", "LEFT 0/o0", "LEFT 0/o1", "LEFT 0/o2",
	})
	s.expect("requests", s.requests(), append(listed("2", 2), of("watch", "1 2")+" from a version"))
	for slot := range 4 {
		s.put(slot, "o0", "changed")
		s.put(slot, "new", "")
		s.remove(slot, "o1")
	}
	s.expect("changes", s.events(), []string{
		"ADDED 1/new", "ADDED 2/new", "DELETED 1/o1", "DELETED 2/o1", "MODIFIED 1/o0", "MODIFIED 2/o0",
	})
	if c := s.counters(); (c.FilteredEvents == 0) != how.honour || c.WireEvents != c.Events+c.FilteredEvents ||
		(c.FilteredBytes == 0) != how.honour || c.WireBytes <= c.FilteredBytes {
		t.Errorf("counted %+v", c)
	}
	s.requests()

	s.hold()
	s.expect("none", s.events(), []string{
		"LEFT 1/new", "LEFT 1/o0", "LEFT 1/o2", "LEFT 2/new", "LEFT 2/o0", "LEFT 2/o2",
	})
	if n := s.server.Log().Open(apiserver.Match{}); n != 0 || len(s.requests()) != 0 {
		t.Errorf("%d open requests", n)
	}
	if st := s.status(); st.Reason != source.ReasonNoSlots || !st.Synced || st.Phase != source.Watching {
		t.Errorf("without slots: %+v", st)
	}

	s.hold(0, 1, 2, 3)
	if n := len(s.events()); n != 12 {
		t.Errorf("%d events for all slots", n)
	}
	if r := s.server.Log().Requests; selects(r[len(r)-1]) {
		t.Error("a selector for all slots")
	}
	s.check()
}

// TestRemainingSlotsAreListedOnce gains all missing slots. The server's count of remaining objects includes all slots,
// so the list seems to lack some.
func TestRemainingSlotsAreListedOnce(t *testing.T) {
	t.Parallel()
	for had := range 4 {
		t.Run(fmt.Sprint("slot ", had, " was held"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := watchSlots(t, selectings[0], apiserver.Options{}, byLists)
				s.hold(had)
				s.events()
				s.requests()
				s.hold(0, 1, 2, 3)
				if n := len(s.events()); n != 9 {
					t.Errorf("%d events, want those of three slots of 3 objects each", n)
				}
				lists := slices.DeleteFunc(s.requests(), func(r string) bool { return !strings.HasPrefix(r, "list") })
				if c := s.counters(); len(lists) != 5 || c.ListErrors != 0 {
					t.Errorf("%d lists failed; requests %q, want five pages of 2 objects", c.ListErrors, lists)
				}
				s.check()
			})
		})
	}
}

func (s *slots) status() source.Status {
	synctest.Wait()
	return s.Source.Status()[0]
}

// TestHistoryOfASlotIsNotDelivered: the watch repeats earlier changes of a gained slot, and the sink does not get them.
func TestHistoryOfASlotIsNotDelivered(t *testing.T) {
	t.Parallel()
	for _, how := range selectings[:2] {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := watchSlots(t, how, apiserver.Options{BookmarkInterval: time.Hour})
				s.hold(0)
				s.events()
				watch := s.server.HoldEvents(apiserver.Match{Verb: "watch"})
				s.put(1, "o0", "changed")
				s.remove(1, "o1")
				s.put(1, "o1", "again")
				s.remove(1, "o2")
				s.put(1, "came-and-went", "")
				s.remove(1, "came-and-went")
				s.put(0, "o0", "changed")
				s.hold(0, 1)
				s.expect("while the watch is behind", s.events(), []string{"ADDED 1/o0 initial", "ADDED 1/o1 initial"})
				s.put(1, "o0", "once more")
				s.remove(1, "o1")
				watch.Release()
				s.expect("when it has come", s.events(), []string{"DELETED 1/o1", "MODIFIED 0/o0", "MODIFIED 1/o0"})
				s.check()
			})
		})
	}
}

func initial(r apiserver.Request) bool { return r.Query.Has("sendInitialEvents") }

// TestSlotsAreListedAgain: a failed list of gained slots is repeated.
func TestSlotsAreListedAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		match  apiserver.Match
		fault  apiserver.Fault
		whole  bool // the source lists everything
	}{
		{
			"The initial events are cut.",
			apiserver.Match{Verb: "watch", Func: initial, Times: 1},
			apiserver.Cut(100), false,
		},
		{
			"The server does not support initial events any more.",
			apiserver.Match{Verb: "watch", Func: initial},
			apiserver.Answer(apiserver.Failure(422)), false,
		},
		{
			"The initial events have no end.",
			apiserver.Match{Verb: "watch", Func: initial, Times: 1},
			apiserver.NoInitialEventsEnd(), false,
		},
		{"A temporary failure.", apiserver.Match{Times: 4}, apiserver.Answer(apiserver.Failure(503)), false},
		{"Too many requests.", apiserver.Match{Times: 2}, apiserver.Answer(apiserver.TooManyRequests(7)), false},
		{"A cut body.", apiserver.Match{Times: 2}, apiserver.Cut(100), false},
		{"The second page has expired.", apiserver.Match{Times: 1, Page: 2}, apiserver.Answer(apiserver.Expired()), false},
		{"An empty page is not trusted.", apiserver.Match{Times: 1, Page: 2}, apiserver.EmptyList(), false},
		{
			"An expired version leads to a list of everything.",
			apiserver.Match{Times: 1, Page: 1},
			apiserver.Answer(apiserver.Expired()), true,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var how []func(*source.Config)
				if tc.match.Verb == "" {
					tc.match.Verb, how = "list", append(how, byLists)
				}
				s := watchSlots(t, selecting{honour: true}, apiserver.Options{}, how...)
				s.hold(0)
				s.events()
				s.requests()
				s.server.On(tc.match, tc.fault)
				s.put(0, "o0", "meanwhile")
				s.hold(0, 1)
				s.expect("events", s.events(), []string{
					"ADDED 1/o0 initial", "ADDED 1/o1 initial", "ADDED 1/o2 initial", "MODIFIED 0/o0",
				})
				whole := slices.ContainsFunc(s.requests(), func(r string) bool { return r == "list of [0 1]" })
				if whole != tc.whole && tc.match.Verb == "list" { // otherwise it is a probe
					t.Errorf("the source listed everything: %t, want %t", whole, tc.whole)
				}
				s.check()
			})
		})
	}
}

// TestChangesOfSlotsFold: many changes of slots at once lead to few lists.
func TestChangesOfSlotsFold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := watchSlots(t, selecting{honour: true}, apiserver.Options{})
		s.hold(0)
		s.requests()
		list := s.server.HoldEvents(apiserver.Match{Verb: "watch"})
		for i := range 50 {
			if err := s.sharding.Set(fourSlots.Set(i%4, 3)); err != nil {
				t.Fatal(err)
			}
		}
		s.hold(1, 2)
		list.Release()
		if got := s.requests(); len(got) > 30 || got[len(got)-1] != "watch of [1 2] from a version" {
			t.Errorf("requests %v", got)
		}
		s.check()
	})
}

// TestOpaqueVersionsListAll: without ordered versions, gained slots need a list of everything. Otherwise new and
// repeated changes could not be distinguished.
func TestOpaqueVersionsListAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := watchSlots(t, selecting{honour: true}, apiserver.Options{OpaqueVersions: true})
		s.hold(0)
		s.events()
		s.put(1, "o0", "changed")
		s.hold(0, 1)
		s.expect("events", s.events(), []string{"ADDED 1/o0 initial", "ADDED 1/o1 initial", "ADDED 1/o2 initial"})
		s.put(1, "o0", "once more")
		s.expect("then", s.events(), []string{"MODIFIED 1/o0"})
		s.check()
	})
}
