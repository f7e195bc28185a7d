package source_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
)

// faults returns the faults that requests may meet. Under all of them the sink must reach the state of the server.
// Swapped events are missing: a bookmark could overtake an event that never arrives.
func faults(rnd *rand.Rand) []apiserver.Fault {
	all := []apiserver.Fault{
		apiserver.Answer(apiserver.Expired()), apiserver.Answer(apiserver.TooManyRequests(2)),
		apiserver.Answer(apiserver.VersionTooLarge(1)),
		apiserver.Answer(apiserver.StoreReadError()), apiserver.Answer(apiserver.Failure(500)),
		apiserver.Answer(apiserver.Failure(401)),
		apiserver.Answer(apiserver.Failure(403)), apiserver.Answer(apiserver.Failure(404)),
		apiserver.Answer(apiserver.Failure(504)),
		apiserver.HTML(502), apiserver.HTML(200), apiserver.Text(503, "upstream"), apiserver.Table(),
		apiserver.DuplicateItems(),
		apiserver.NoListVersion(), apiserver.ExpireContinue(true), apiserver.Silent(), apiserver.NoBookmarks(),
		apiserver.IgnoreTimeout(),
		apiserver.EndAfter(rnd.IntN(4)), apiserver.ErrorEvent(rnd.IntN(3), apiserver.Expired()),
		apiserver.ErrorEvent(rnd.IntN(3), apiserver.Failure(500)),
		apiserver.ErrorEvent(1, apiserver.StoreReadError()), apiserver.DuplicateEvents(), apiserver.ReplayEvents(3),
		apiserver.NoInitialEventsEnd(), apiserver.PlainInitialEventsEnd(), apiserver.IgnoreWatchList(),
		apiserver.Delay(3 * time.Second),
		apiserver.Drop(), apiserver.BlackHole(), apiserver.Cut(rnd.Int64N(2000)), apiserver.Fragment(1, 7, 100),
	}
	picked := []apiserver.Fault{all[rnd.IntN(len(all))]}
	if rnd.IntN(3) == 0 {
		picked = append(picked, all[rnd.IntN(len(all))])
	}
	return picked
}

// TestChaos makes random writes under random faults. After the faults the sink has what the server has, and no version
// ever went down. A fake clock makes hours cheap.
func TestChaos(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	server, err := apiserver.New(apiserver.Options{Pipe: true, NoWatchList: rnd.IntN(4) == 0, OpaqueVersions: seed%8 == 7})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	put := func() {
		cm := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("o", rnd.IntN(12))},
			Data:       map[string]string{"n": fmt.Sprint(rnd.Int())},
		}
		if _, err := server.Put(cm); err != nil {
			t.Fatal(err)
		}
	}
	for range rnd.IntN(20) {
		put()
	}
	r := newRecorder(t)
	r.odd = seed%8 == 7
	enc := source.JSON
	if rnd.IntN(2) == 0 {
		enc = source.Protobuf
	}
	src, err := source.New(source.Config{
		REST: server.Config(), Resource: configMaps, PageSize: 1 + rnd.IntN(5),
		Encoding: enc,
	}, r.sink)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- src.Run(ctx) }()
	// One list is empty by mistake. Two in a row would be accepted.
	server.On(apiserver.Match{Verb: "list", Nth: 1 + rnd.IntN(20)}, apiserver.EmptyList())
	for range 60 {
		switch rnd.IntN(12) {
		case 0:
			server.Compact(0)
		case 1:
			server.DropConnections()
		case 2:
			server.Down()
			time.Sleep(time.Duration(rnd.IntN(60)) * time.Second)
			if err := server.Up(); err != nil {
				t.Fatal(err)
			}
		case 3, 4, 5:
			verb := []string{"list", "watch", ""}[rnd.IntN(3)]
			server.On(apiserver.Match{Verb: verb, Times: 1 + rnd.IntN(3)}, faults(rnd)...)
		case 6:
			if err := server.Remove(configMaps, "ns", fmt.Sprint("o", rnd.IntN(12))); err != nil {
				put()
			}
		default:
			put()
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(40 * time.Second))))
	}
	server.ClearFaults()
	put()
	time.Sleep(40 * time.Minute) // longer than a watch with a fault can live
	synctest.Wait()
	same(t, server, r)
	if st := src.Status()[0]; st.Phase != source.Watching {
		t.Errorf("seed %d: status %+v", seed, st)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// same compares what the server has with what the sink has.
func same(t *testing.T, server *apiserver.Server, r *recorder) {
	t.Helper()
	want := map[string]string{}
	all, err := server.Objects(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		want["ns/"+o.GetName()] = string(o.GetUID()) + "@" + o.GetResourceVersion()
	}
	got := map[string]string{}
	for key, o := range r.snapshot() {
		got[key] = o.uid + "@" + o.version
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("server and sink differ (-server +sink):\n%s\nlog %q", diff, r.lines())
	}
}

// TestRestoredBackup: after a rollback of the server's history the sink follows it with one epoch.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		put := func(n int) {
			cm := &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("o", n)},
				Data:       map[string]string{"at": fmt.Sprint(server.Revision())},
			}
			if _, err := server.Put(cm); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 40 {
			put(n % 25)
		}
		r := newRecorder(t)
		src, err := source.New(source.Config{REST: server.Config(), Resource: configMaps}, r.sink)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- src.Run(ctx) }()
		time.Sleep(time.Minute)
		same(t, server, r)
		if err := server.Rollback(10); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		same(t, server, r)
		put(3)
		put(90)
		time.Sleep(time.Second)
		same(t, server, r)
		if n := counted(r.lines(), "EPOCH"); n != 1 {
			t.Errorf("%d epochs, want 1: %q", n, r.lines())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
