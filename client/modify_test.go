package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

func set(k, v string) func(*corev1.ConfigMap) error {
	return func(cm *corev1.ConfigMap) error {
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[k] = v
		return nil
	}
}

func TestModify(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{true, false} {
		for _, held := range []bool{true, false} {
			if held && !watched {
				continue
			}
			t.Run(fmt.Sprintf("watched %v, held %v", watched, held), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := setup{}
					if watched {
						s.watch = []string{"ConfigMap"}
					}
					c := start(t.Context(), t, s)
					defer c.close()
					c.put(foreign("web", "k", "v"))
					synctest.Wait()
					if held {
						hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
						defer hold.Release()
					}
					// Another client writes before each of the first two patches arrives.
					n := 0
					c.server.On(apiserver.Match{Verb: "patch", Times: 2}, apiserver.Before(func(context.Context, apiserver.Request) {
						n++
						live, err := c.server.Object(configMaps, "a", "web")
						if err != nil {
							t.Error(err)
							return
						}
						live.Object["data"].(map[string]any)[fmt.Sprint("foreign", n)] = "x"
						c.put(live)
					}))
					runs := 0
					cm := configMap("web")
					if err := client.Modify(c.ctx, c.client, cm,
						func(cm *corev1.ConfigMap) error { runs++; return set("own", "y")(cm) }); err != nil {
						t.Fatal(err)
					}
					live, err := c.server.Object(configMaps, "a", "web")
					if err != nil {
						t.Fatal(err)
					}
					want := `map[foreign1:x foreign2:x k:v own:y]`
					if got := fmt.Sprint(live.Object["data"]); got != want || runs != 3 {
						t.Errorf("after %d runs the server has %s, want %s", runs, got, want)
					}
					if got := fmt.Sprint(cm.Data); got != want || cm.ResourceVersion != live.GetResourceVersion() {
						t.Errorf("the response is %s at %s", got, cm.ResourceVersion)
					}
				})
			})
		}
	}
}

func TestModifyGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		c.put(foreign("web", "k", "v"))
		synctest.Wait()
		c.server.On(apiserver.Match{Verb: "patch"}, apiserver.Answer(apiserver.Failure(409)))
		err := client.Modify(c.ctx, c.client, configMap("web"), set("k", "w"))
		if !errors.Is(err, client.ErrTooManyConflicts) || !apierrors.IsConflict(err) || c.requests("patch") != 10 {
			t.Errorf("after %d patches: %v", c.requests("patch"), err)
		}
	})
}

func TestModifyEnds(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		old := configMap("web", "k", "v")
		if err := c.client.Create(c.ctx, old); err != nil {
			t.Fatal(err)
		}
		if err := client.Modify(c.ctx, c.client, configMap("absent"), set("k", "w")); !apierrors.IsNotFound(err) {
			t.Errorf("absent: %v", err)
		}
		if err := client.Modify(c.ctx, c.client, old.DeepCopy(),
			func(*corev1.ConfigMap) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("an error of the function: %v", err)
		}
		if err := client.Modify(c.ctx, c.client, old.DeepCopy(),
			func(*corev1.ConfigMap) error { panic("boom") }); err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("a panic of the function: %v", err)
		}
		shared, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.client.Delete(c.ctx, configMap("web")); err != nil {
			t.Fatal(err)
		}
		if err := c.client.Create(c.ctx, configMap("web", "k", "v")); err != nil {
			t.Fatal(err)
		}
		if err := client.Modify(c.ctx, c.client, old.DeepCopy(), set("k", "w")); !errors.Is(err, client.ErrReplaced) {
			t.Errorf("another incarnation: %v", err)
		}
		if n := c.requests("patch"); n != 0 {
			t.Errorf("%d patches were sent", n)
		}
		if shared.Data["k"] != "v" {
			t.Error("a shared object was changed")
		}
	})
}

// Parallel modifications of one object lose no change.
func TestModifyInParallel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		if err := c.client.Create(c.ctx, configMap("web")); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 5 {
					err := client.ErrTooManyConflicts
					for errors.Is(err, client.ErrTooManyConflicts) {
						err = client.Modify(c.ctx, c.client, configMap("web"), set(fmt.Sprintf("%d-%d", i, j), "x"))
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		live, err := c.server.Object(configMaps, "a", "web")
		if err != nil || len(live.Object["data"].(map[string]any)) != 40 {
			t.Errorf("got %v, %v; want 40 entries", live, err)
		}
	})
}

// With versions that cannot be ordered, writes require a version, and a conflict waits for the cache.
func TestOpaqueVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{
			server: apiserver.Options{OpaqueVersions: true}, watch: []string{"ConfigMap"},
		})
		defer c.close()
		if err := c.client.Create(c.ctx, configMap("web", "k", "v")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		live, err := c.server.Object(configMaps, "a", "web")
		if err != nil {
			t.Fatal(err)
		}
		live.Object["data"] = map[string]any{"k": "foreign"}
		c.put(live)

		begun := time.Now()
		err = client.Modify(c.ctx, c.client, configMap("web"), set("own", "x"))
		if !errors.Is(err, client.ErrCacheBehind) || !apierrors.IsConflict(err) || time.Since(begun) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if n := c.requests("get"); n != 0 {
			t.Errorf("%d live reads, want none", n)
		}
		time.AfterFunc(time.Second, hold.Release)
		cm := configMap("web")
		if err := client.Modify(c.ctx, c.client, cm, set("own", "x")); err != nil ||
			fmt.Sprint(cm.Data) != "map[k:foreign own:x]" {
			t.Errorf("got %v, %v", cm.Data, err)
		}
		own, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
		if err != nil || own.Data["own"] != "x" {
			t.Errorf("the own write is not read: %v, %v", own, err)
		}
	})
}

// A write into a shared object is refused.
func TestSharedObjectIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		c.put(foreign("web", "colour", "red"))
		synctest.Wait()
		shared, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
		if err != nil {
			t.Fatal(err)
		}
		for name, write := range map[string]func() error{
			"Modify": func() error { return client.Modify(c.ctx, c.client, shared, set("colour", "green")) },
			"Update": func() error { return c.client.Update(c.ctx, shared) },
		} {
			if err := write(); !errors.Is(err, client.ErrShared) {
				t.Errorf("%s: %v, want ErrShared", name, err)
			}
		}
		if shared.Data["colour"] != "red" {
			t.Errorf("the shared object has changed: %v", shared.Data)
		}
		own := shared.DeepCopy()
		if err := client.Modify(c.ctx, c.client, own, set("colour", "green")); err != nil || own.Data["colour"] != "green" {
			t.Errorf("a copy: %v, %v", own.Data, err)
		}
		if err := c.client.Delete(c.ctx, shared); err != nil {
			t.Errorf("Delete only reads the object: %v", err)
		}
	})
}

// The response to a change is lost, or the change itself, and another client counts before it is sent again.
func TestModifyInDoubt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		fault  apiserver.Fault
		fn     func(*corev1.ConfigMap) error
		want   string // of n
		known  bool
	}{
		{"a number is incremented, and then by another client", apiserver.DropAfter(), increment, "2", false},
		{"only another client increments a number, to the same value", apiserver.Drop(), increment, "1", false},
		{"a value is set twice", apiserver.DropAfter(), set("n", "0x"), "0x", true},
		{"a value is set by the second try", apiserver.Drop(), set("n", "0x"), "0x", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
				defer c.close()
				if err := c.client.Apply(c.ctx, configMap("web", "n", "0")); err != nil {
					t.Fatal(err)
				}
				theirs, err := client.New(client.Options{Call: c.calls, Mapper: c.client.Mapper(), FieldOwner: "they"})
				if err != nil {
					t.Fatal(err)
				}
				defer theirs.Close()
				c.server.On(apiserver.Match{Verb: "patch", Nth: 2}, apiserver.Before(func(context.Context, apiserver.Request) {
					err := client.Modify(c.ctx, theirs, configMap("web"), func(cm *corev1.ConfigMap) error {
						n, _ := strconv.Atoi(strings.TrimSuffix(cm.Data["n"], "x"))
						cm.Data["n"] = strconv.Itoa(n + 1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}))
				c.server.On(apiserver.Match{Verb: "patch", Times: 1}, tc.fault)
				if err := client.Modify(c.ctx, c.client, configMap("web"), tc.fn); (err == nil) != tc.known ||
					!tc.known && !errors.Is(err, call.ErrOutcomeUnknown) {
					t.Errorf("got %v", err)
				}
				if live, err := c.server.Object(configMaps, "a", "web"); err != nil ||
					live.Object["data"].(map[string]any)["n"] != tc.want {
					t.Errorf("the server has %v, %v", live, err)
				}
			})
		})
	}
}

// A conflict that Modify resolves, or that its caller expects, is not logged as a warning. Other conflicts are.
func TestAbsorbedConflictsAreNoWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		var warnings, details bytes.Buffer
		log := slog.New(slog.NewMultiHandler(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelInfo}),
			slog.NewTextHandler(&details, &slog.HandlerOptions{Level: slog.LevelDebug})))
		logging, err := client.New(client.Options{
			Config: c.server.Config(), Logger: log, Cache: c.cache, Mapper: c.client.Mapper(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer logging.Close()
		c.put(foreign("web", "n", "1"))
		synctest.Wait()
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		stale, err := client.Get[corev1.ConfigMap](c.ctx, c.client, key("web"))
		if err != nil {
			t.Fatal(err)
		}
		c.put(foreign("web", "n", "2"))
		if err := client.Modify(c.ctx, logging, configMap("web"), set("k", "v")); err != nil {
			t.Fatal(err)
		}
		if warnings.Len() > 0 || !strings.Contains(details.String(), "reason=Conflict") {
			t.Errorf("warnings:\n%s\ndetails:\n%s", &warnings, &details)
		}
		own := stale.DeepCopy()
		own.Data["n"] = "3"
		err = logging.Patch(c.ctx, own, client.MergeFrom(stale), client.SameVersion(), writeoption.ConflictsExpected())
		if !apierrors.IsConflict(err) || warnings.Len() > 0 {
			t.Errorf("an expected conflict: %v\n%s", err, &warnings)
		}
		if err := logging.Patch(c.ctx, own, client.MergeFrom(stale), client.SameVersion()); !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		if !strings.Contains(warnings.String(), "level=WARN") {
			t.Errorf("a conflict that is returned is not logged: %s", &details)
		}
	})
}
