package alloc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// other starts another process, whose watch lags.
func (b *bench) other(lag time.Duration) *client.Client {
	cfg := b.server.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return lagging{rt, lag} })
	h := testbed.NewHost(b.t, cfg, testbed.Mapper(testbed.Resources()))
	h.Start(b.t.Context())
	handle := h.Watch(testbed.GroupVersion.WithKind("Gateway"))
	b.t.Cleanup(func() { handle.Release(); _ = h.Stop() })
	return h.Client()
}

func (b *bench) stored() alloc.Slot { return testbed.Stored(b.server, web).Status.Allocated["ip"] }

// wipe removes a field, as writers do that do not know slots.
func (b *bench) wipe(path ...string) {
	testbed.Change(b.t, b.server, testbed.Gateways, web,
		func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, path...) })
}

// returns records the values given back.
type returns struct {
	mu     sync.Mutex
	keys   []string
	values []string
}

func (r *returns) fn(_ context.Context, key, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys, r.values = append(r.keys, key), append(r.values, value)
	return nil
}

// Two replicas allocate at the same time.
func TestALaggingReplicaGivesNothingBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ lag, pace time.Duration }{
		{150 * time.Millisecond, 40 * time.Millisecond},
		{20 * time.Millisecond, 40 * time.Millisecond},
		{5 * time.Millisecond, time.Millisecond},
		{10 * time.Second, 0},
	} {
		t.Run(fmt.Sprint(tc.lag, " and ", tc.pace), func(t *testing.T) {
			bubble(t, func(b *bench) {
				var back returns
				create := func(_ context.Context, key string) (string, error) {
					<-time.After(tc.pace)
					return "ip-" + key[:8], nil
				}
				values, clients := make([]string, 3), []*client.Client{b.c, b.other(tc.lag), b.other(2 * tc.lag)}
				<-time.After(time.Minute)
				var wg sync.WaitGroup
				for i, c := range clients {
					wg.Go(func() {
						g := testbed.Stored(b.server, web)
						var err error
						if values[i], err = alloc.Once(b.ctx, c, g, "ip", create, alloc.Discard(back.fn)); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if len(back.values) > 0 {
					t.Errorf("given back: %v", back.values)
				}
				for _, v := range values {
					if v != b.stored().Value || v == "" {
						t.Errorf("returned %v, stored is %+v", values, b.stored())
					}
				}
			})
		})
	}
}

func TestReleaseBehindTheServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		before func(b *bench)
	}{
		{"the cache shows no slot", func(*bench) {}},
		{"the cache shows no object", func(b *bench) {
			if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
				b.t.Fatal(err)
			}
			synctest.Wait()
		}},
		{"the cache shows a former object of its name", func(b *bench) {
			b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
			if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
				b.t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var back returns
				tc.before(b)
				b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
				if testbed.Stored(b.server, web) == nil {
					g := testbed.New("a", "web")
					g.Finalizers = []string{finalizer}
					testbed.Put(t, b.server, g)
				}
				another := b.other(0)
				ip, err := alloc.Once(b.ctx, another, testbed.Stored(b.server, web), "ip", new(provider).create)
				if err != nil {
					t.Fatal(err)
				}
				if err := alloc.Release(b.ctx, b.c, testbed.Stored(b.server, web), "ip", back.fn); err != nil ||
					!cmp.Equal(back.values, []string{ip}) {
					t.Errorf("released %v, %v, want %s", back.values, err, ip)
				}
				if s := b.stored(); s.Key != "" || s.Released != 1 {
					t.Errorf("stored is %+v", s)
				}
			})
		})
	}
}

// A missing subresource of the kind does not mean that the object is absent.
func TestReleaseDoesNotTakeAnyNotFoundForAbsence(t *testing.T) {
	bubble(t, func(b *bench) {
		if _, err := alloc.Once(b.ctx, b.c, b.get(), "ip", new(provider).create); err != nil {
			t.Fatal(err)
		}
		b.server.On(apiserver.Match{Verb: "patch"}, apiserver.Answer(apiserver.Failure(http.StatusNotFound)))
		if err := alloc.Release(b.ctx, b.c, b.get(), "ip", new(returns).fn); err == nil {
			t.Error("no error, and nothing is released")
		}
	})
}

// A state in the cache that forbids an allocation is verified with the server.
func TestOnceBehindTheServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason       string
		before, then func(u *unstructured.Unstructured)
	}{
		{
			"the finalizer exists by now", func(u *unstructured.Unstructured) { u.SetFinalizers(nil) },
			func(u *unstructured.Unstructured) { u.SetFinalizers([]string{finalizer}) },
		},
		{"the annotation was repaired", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{"alloc.fairlead.io/slots": "{"})
		}, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) }},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				testbed.Change(t, b.server, testbed.Gateways, web, tc.before)
				synctest.Wait()
				b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
				testbed.Change(t, b.server, testbed.Gateways, web, tc.then)
				if ip, err := alloc.Once(b.ctx, b.c, b.get(), "ip", new(provider).create); err != nil || b.stored().Value != ip {
					t.Errorf("got %q, %v", ip, err)
				}
			})
		})
	}
}

// After another process has released a value, Once still returns it from a cache that is behind. With Live it allocates
// a new one.
func TestLive(t *testing.T) {
	bubble(t, func(b *bench) {
		var p provider
		first, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
		if err := alloc.Release(b.ctx, b.other(0), testbed.Stored(b.server, web), "ip", new(returns).fn); err != nil {
			t.Fatal(err)
		}
		if ip, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create); err != nil || ip != first {
			t.Errorf("from the cache: %q, %v", ip, err)
		}
		second, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create, alloc.Live())
		if err != nil || second == first || second != b.stored().Value {
			t.Errorf("live: %q after %q, %v", second, first, err)
		}
		before := b.server.Log().Count(apiserver.Match{Verb: "patch"})
		if again, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create, alloc.Live()); err != nil || again != second {
			t.Errorf("live, once more: %q, %v", again, err)
		}
		if n := b.server.Log().Count(apiserver.Match{Verb: "patch"}) - before; n > 0 {
			t.Errorf("%d writes to confirm a value", n)
		}
	})
}

// Other writers wipe the status at any moment.
func TestAWipedStatus(t *testing.T) {
	t.Parallel()
	all := func(b *bench) { b.wipe("status"); b.wipe("metadata", "annotations") }
	for _, tc := range []struct {
		reason string
		wipe   func(b *bench)
	}{
		{"a slot", func(b *bench) { b.wipe("status", "allocated", "ip") }},
		{"all slots", func(b *bench) { b.wipe("status", "allocated") }},
		{"the status", func(b *bench) { b.wipe("status") }},
		{"the annotations", func(b *bench) { b.wipe("metadata", "annotations") }},
		{"both", all},
	} {
		t.Run(tc.reason+" during create", func(t *testing.T) {
			bubble(t, func(b *bench) {
				var p provider
				var back returns
				ip, err := alloc.Once(b.ctx, b.c, b.get(), "ip", func(ctx context.Context, key string) (string, error) {
					tc.wipe(b)
					return p.create(ctx, key)
				}, alloc.Discard(back.fn))
				if s := b.stored(); err != nil || s.Value != ip || s.Key != p.keys[0] || len(back.values) > 0 {
					t.Errorf("got %q, %v, stored is %+v, given back %v", ip, err, s, back.values)
				}
			})
		})
		t.Run(tc.reason+" later", func(t *testing.T) {
			bubble(t, func(b *bench) {
				var p provider
				for range 2 {
					ip, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create)
					if s := b.stored(); err != nil || s.Value != ip || len(p.made) != 1 {
						t.Errorf("got %q, %v, stored is %+v, created %v", ip, err, s, p.made)
					}
					tc.wipe(b)
					synctest.Wait()
				}
			})
		})
		if tc.reason == "both" {
			continue // then no record identifies it
		}
		t.Run(tc.reason+", and the object is deleted", func(t *testing.T) {
			bubble(t, func(b *bench) {
				var p provider
				var back returns
				if _, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create); err != nil {
					t.Fatal(err)
				}
				tc.wipe(b)
				synctest.Wait()
				g := b.get()
				if held := alloc.Held(g); !cmp.Equal(held, []string{"ip"}) {
					t.Errorf("held: %v", held)
				}
				if err := alloc.Release(b.ctx, b.c, g, "ip", back.fn); err != nil || !cmp.Equal(back.keys, p.keys) ||
					len(alloc.Held(b.get())) > 0 {
					t.Errorf("released %v, %v, want %v; held %v", back.keys, err, p.keys, alloc.Held(b.get()))
				}
			})
		})
		t.Run(tc.reason+" while it is released", func(t *testing.T) {
			bubble(t, func(b *bench) {
				var p provider
				if _, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create); err != nil {
					t.Fatal(err)
				}
				for n := range 2 {
					var back returns
					err := alloc.Release(b.ctx, b.c, b.get(), "ip", func(ctx context.Context, key, value string) error {
						tc.wipe(b)
						if n == 0 {
							return errors.New("it is in use")
						}
						return back.fn(ctx, key, value)
					})
					if n == 1 && (err != nil || !cmp.Equal(back.keys, p.keys)) {
						t.Errorf("released %v, %v", back.keys, err)
					}
					if n == 1 {
						break
					}
					synctest.Wait()
					if ip, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create); !errors.Is(err, alloc.ErrReleasing) ||
						!b.stored().Releasing {
						t.Errorf("got %q, %v, stored is %+v", ip, err, b.stored())
					}
				}
				tc.wipe(b)
				synctest.Wait()
				if _, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create); err != nil || len(p.keys) != 2 ||
					p.keys[0] == p.keys[1] {
					t.Errorf("afterwards: %v, keys %v", err, p.keys)
				}
			})
		})
	}
}

// A discarded key is never used again, even after the number that says so is wiped.
func TestADiscardedKeyIsNotUsedAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		var p provider
		var back returns
		_, err := alloc.Once(b.ctx, b.c, b.get(), "ip", func(ctx context.Context, key string) (string, error) {
			// As a version without marks writes it.
			testbed.Change(t, b.server, testbed.Gateways, web, func(u *unstructured.Unstructured) {
				u.SetAnnotations(nil)
				_ = unstructured.SetNestedField(u.Object, map[string]any{"ip": map[string]any{"released": int64(1)}}, "status",
					"allocated")
			})
			return p.create(ctx, key)
		}, alloc.Discard(func(ctx context.Context, key, value string) error {
			b.wipe("status")
			return back.fn(ctx, key, value)
		}))
		var o *alloc.OrphanError
		if !errors.As(err, &o) || !o.Discarded || !strings.Contains(err.Error(), "the intent was superseded") ||
			len(back.keys) != 1 {
			t.Fatalf("got %v, given back %v", err, back.keys)
		}
		synctest.Wait()
		ip, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create)
		if err != nil || slices.Contains(back.values, ip) || p.keys[1] == back.keys[0] {
			t.Errorf("got %q, %v, keys %v", ip, err, p.keys)
		}
	})
}

// Nothing is discarded while it may have been recorded.
func TestNothingIsDiscardedInDoubt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		during func(b *bench)
	}{
		{"the server does not answer", func(b *bench) { b.server.On(apiserver.Match{}, apiserver.Drop()) }},
		{"the number cannot be marked", func(b *bench) {
			testbed.Change(b.t, b.server, testbed.Gateways, web, func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, map[string]any{"ip": map[string]any{"released": int64(1)}}, "status",
					"allocated")
			})
			b.server.On(apiserver.Match{Verb: "patch"}, apiserver.Answer(apiserver.Failure(http.StatusForbidden)))
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var back returns
				_, err := alloc.Once(b.ctx, b.c, b.get(), "ip",
					func(context.Context, string) (string, error) { tc.during(b); return "mine", nil }, alloc.Discard(back.fn))
				if err == nil || len(back.values) > 0 {
					t.Errorf("got %v, given back %v", err, back.values)
				}
			})
		})
	}
}

// Another writer restores a status from before the release.
func TestARestoredStatusIsIgnored(t *testing.T) {
	bubble(t, func(b *bench) {
		var p provider
		if _, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create); err != nil {
			t.Fatal(err)
		}
		old := testbed.Stored(b.server, web).Status.Allocated["ip"]
		if err := alloc.Release(b.ctx, b.c, b.get(), "ip", new(returns).fn); err != nil {
			t.Fatal(err)
		}
		testbed.Change(t, b.server, testbed.Gateways, web, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, map[string]any{"key": old.Key, "value": old.Value}, "status", "allocated",
				"ip")
		})
		synctest.Wait()
		if v := alloc.Values(b.get()); len(v) > 0 {
			t.Errorf("it shows %v", v)
		}
		ip, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create)
		if s := b.stored(); err != nil || ip == old.Value || s.Value != ip || s.Key == old.Key {
			t.Errorf("got %q after %q, %v, stored is %+v", ip, old.Value, err, s)
		}
	})
}

// The resource is created after Release has looked for it, and before the slot is empty.
func TestReleaseDuringACreate(t *testing.T) {
	bubble(t, func(b *bench) {
		made, another := "", b.other(0)
		find := alloc.Find(func(context.Context, string) (string, bool, error) { return made, made != "", nil })
		looked, recorded := make(chan struct{}), make(chan struct{})
		var back, discarded returns
		var wg sync.WaitGroup
		_, err := alloc.Once(b.ctx, b.c, b.get(), "ip", func(context.Context, string) (string, error) {
			wg.Go(func() {
				err := alloc.Release(b.ctx, another, testbed.Stored(b.server, web), "ip", back.fn,
					alloc.Find(func(context.Context, string) (string, bool, error) {
						close(looked)
						<-recorded
						return "", false, nil
					}))
				if err != nil {
					t.Error(err)
				}
			})
			<-looked
			made = "late"
			return made, nil
		}, find, alloc.Discard(discarded.fn))
		if !errors.Is(err, alloc.ErrReleasing) || len(discarded.values) > 0 {
			t.Errorf("got %v, discarded %v", err, discarded.values)
		}
		close(recorded)
		wg.Wait()
		if !cmp.Equal(back.values, []string{"late"}) || b.stored().Key != "" {
			t.Errorf("released %v, stored is %+v", back.values, b.stored())
		}
	})
}

// An object that is deleted without the finalizer will never be released, so its value is given back.
func TestAnObjectDeletedWithoutTheFinalizer(t *testing.T) {
	bubble(t, func(b *bench) {
		var back returns
		_, err := alloc.Once(b.ctx, b.c, b.get(), "ip", func(context.Context, string) (string, error) {
			testbed.Change(t, b.server, testbed.Gateways, web,
				func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/other"}) })
			return "mine", b.server.Delete(b.ctx, testbed.Gateways, "a", "web", metav1.DeleteOptions{})
		}, alloc.Discard(back.fn))
		if !errors.Is(err, alloc.ErrDeleting) || !cmp.Equal(back.values, []string{"mine"}) {
			t.Errorf("got %v, given back %v", err, back.values)
		}
	})
}

// Objects whose status has no slots keep all slots in one annotation. The rules are the same, with one write less.
func TestAnnotationsBehind(t *testing.T) {
	bubble(t, func(b *bench) {
		testbed.Put(t, b.server, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "cm", Finalizers: []string{finalizer}},
		})
		cm := func() *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "cm"}}
		}
		var p provider
		var back, discarded returns
		_, err := alloc.Once(b.ctx, b.c, cm(), "ip", func(ctx context.Context, key string) (string, error) {
			value, err := p.create(ctx, key)
			if err := alloc.Release(b.ctx, b.c, cm(), "ip", back.fn); err != nil {
				t.Error(err)
			}
			return value, err
		}, alloc.Discard(discarded.fn))
		if err == nil || !strings.Contains(err.Error(), "the intent was superseded") || !cmp.Equal(back.keys, p.keys) ||
			!cmp.Equal(discarded.keys, p.keys) {
			t.Errorf("got %v, released %v, discarded %v", err, back.keys, discarded.keys)
		}
		if n := b.server.Log().Count(apiserver.Match{Verb: "patch"}); n != 3 {
			t.Errorf("%d writes, want those of the intent, of releasing and of the end", n)
		}
	})
}
