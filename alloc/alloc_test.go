package alloc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type gateway = testbed.Gateway

const finalizer = "test.fairlead.io/alloc"

var web = client.Key{Namespace: "a", Name: "web"}

// bench is a server and one process that watches gateways.
type bench struct {
	t      *testing.T
	ctx    context.Context // the context of a reconciler with a finalizer
	server *apiserver.Server
	c      *client.Client
}

func bubble(t *testing.T, fn func(b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testbed.Server(t, apiserver.Options{})
		defer s.Close()
		h := testbed.NewHost(t, s.Config(), testbed.Mapper(testbed.Resources()))
		h.Start(t.Context())
		defer func() { _ = h.Stop() }()
		g := testbed.New("a", "web")
		g.Finalizers = []string{finalizer}
		testbed.Put(t, s, g)
		defer h.Watch(testbed.GroupVersion.WithKind("Gateway")).Release()
		synctest.Wait()
		fn(&bench{t: t, ctx: alloc.WithFinalizer(t.Context(), finalizer), server: s, c: h.Client()})
	})
}

// get returns the gateway as the client reads it.
func (b *bench) get() *gateway {
	b.t.Helper()
	g := &gateway{}
	if err := b.c.Get(b.ctx, web, g); err != nil {
		b.t.Fatal(err)
	}
	return g
}

// provider allocates addresses.
type provider struct {
	keys  []string // the keys of its calls of create
	fails int      // number of calls that fail after they have created a resource
	made  map[string]string
}

func (p *provider) create(_ context.Context, key string) (string, error) {
	p.keys = append(p.keys, key)
	if p.made == nil {
		p.made = map[string]string{}
	}
	if p.made[key] == "" {
		p.made[key] = "ip-" + key[:8]
	}
	if p.fails > 0 {
		p.fails--
		return "", errors.New("no answer")
	}
	return p.made[key], nil
}

func TestOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		hold := b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
		defer hold.Release()
		var p provider
		for range 3 {
			g := b.get()
			ip, err := alloc.Once(b.ctx, b.c, g, "ip", func(ctx context.Context, key string) (string, error) {
				if s := testbed.Stored(b.server, web).Status.Allocated["ip"]; s.Key != key || s.Value != "" || s.Since == nil {
					t.Errorf("the intent is not stored before create is called: %+v", s)
				}
				return p.create(ctx, key)
			})
			if err != nil || ip != p.made[p.keys[0]] {
				t.Fatalf("got %q, %v", ip, err)
			}
			if got := alloc.Values(b.get()); !cmp.Equal(got, map[string]string{"ip": ip}) {
				t.Errorf("the next read shows %v", got)
			}
		}
		if len(p.keys) != 1 {
			t.Errorf("create was called %d times", len(p.keys))
		}
		if len(p.keys[0]) != 36 {
			t.Errorf("the key is %q", p.keys[0])
		}
		if n := b.server.Log().Count(apiserver.Match{Verb: "patch"}); n != 3 {
			t.Errorf("%d writes, want the intent, its mark and the value", n)
		}
		other, err := alloc.Once(b.ctx, b.c, b.get(), "port", p.create)
		if err != nil || len(p.keys) != 2 || p.keys[0] == p.keys[1] || other == p.made[p.keys[0]] {
			t.Errorf("another slot: %q, %v, keys %v", other, err, p.keys)
		}
	})
}

func TestTheSameKeyAfterAFailure(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		spoil  func(b *bench, p *provider)
	}{
		{"create fails after it has created", func(_ *bench, p *provider) { p.fails = 1 }},
		{"the answer to the intent is lost", func(b *bench, _ *provider) {
			b.server.On(apiserver.Match{Verb: "patch", Nth: 1}, apiserver.After(func(context.Context, apiserver.Request) {}),
				apiserver.DropAfter())
		}},
		{"the value cannot be recorded", func(b *bench, _ *provider) {
			b.server.On(apiserver.Match{Verb: "patch", Nth: 2}, apiserver.Answer(apiserver.Failure(422)))
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var p provider
				tc.spoil(b, &p)
				var ip string
				var err error
				for range 3 {
					if ip, err = alloc.Once(b.ctx, b.c, b.get(), "ip", p.create); err == nil {
						break
					}
				}
				if err != nil || len(p.made) != 1 {
					t.Fatalf("got %v, and %d addresses were created", err, len(p.made))
				}
				for _, k := range p.keys {
					if k != p.keys[0] {
						t.Errorf("another key: %v", p.keys)
					}
				}
				if s := testbed.Stored(b.server, web).Status.Allocated["ip"]; s.Value != ip {
					t.Errorf("stored is %+v, returned was %q", s, ip)
				}
			})
		})
	}
}

func TestFind(t *testing.T) {
	bubble(t, func(b *bench) {
		made := 0
		create := func(context.Context, string) (string, error) { made++; return "first", errors.New("no answer") }
		find := alloc.Find(func(_ context.Context, key string) (string, bool, error) { return "first", made > 0, nil })
		if _, err := alloc.Once(b.ctx, b.c, b.get(), "ip", create, find); err == nil {
			t.Fatal("no error")
		}
		ip, err := alloc.Once(b.ctx, b.c, b.get(), "ip", create, find)
		if ip != "first" || err != nil || made != 1 {
			t.Errorf("got %q, %v, created %d times", ip, err, made)
		}
	})
}

// Once fails before it calls create.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		want    error
		says    string
		slot    string
		prepare func(b *bench) context.Context
		opts    []alloc.Option
	}{
		{reason: "the server prunes the field", want: alloc.ErrDropped, prepare: func(b *bench) context.Context {
			b.server.On(apiserver.Match{Verb: "patch"}, apiserver.Rewrite(func(body []byte) []byte {
				return []byte(strings.Replace(string(body), `"allocated":`, `"ignored__":`, 1))
			}))
			return b.ctx
		}},
		{reason: "the finalizer does not exist yet", want: alloc.ErrNoFinalizer, prepare: func(b *bench) context.Context {
			testbed.Change(b.t, b.server, testbed.Gateways, web, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
			synctest.Wait()
			return b.ctx
		}},
		{
			reason: "the finalizer was removed, and the cache is behind", want: alloc.ErrNoFinalizer,
			prepare: func(b *bench) context.Context {
				b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
				testbed.Change(b.t, b.server, testbed.Gateways, web, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
				return b.ctx
			},
		},
		{reason: "no finalizer is configured", want: alloc.ErrNoFinalizer, prepare: func(b *bench) context.Context {
			return b.t.Context()
		}},
		{
			reason: "another finalizer guards", want: alloc.ErrNoFinalizer,
			opts: []alloc.Option{alloc.Guard("test.fairlead.io/other")},
		},
		{reason: "the object is being deleted", want: alloc.ErrDeleting, prepare: func(b *bench) context.Context {
			b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
			if err := b.server.Delete(b.ctx, testbed.Gateways, "a", "web", metav1.DeleteOptions{}); err != nil {
				b.t.Fatal(err)
			}
			return b.ctx
		}},
		{reason: "the object was replaced", want: client.ErrReplaced, prepare: func(b *bench) context.Context {
			b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
			if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
				b.t.Fatal(err)
			}
			g := testbed.New("a", "web")
			g.Finalizers = []string{finalizer}
			testbed.Put(b.t, b.server, g)
			return b.ctx
		}},
		{reason: "the slot has no proper name", says: "must be a DNS label", slot: "Public IP"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				g, ctx := b.get(), b.ctx
				if tc.prepare != nil {
					ctx = tc.prepare(b)
				}
				slot := tc.slot
				if slot == "" {
					slot = "ip"
				}
				_, err := alloc.Once(ctx, b.c, g, slot, func(context.Context, string) (string, error) {
					t.Error("create was called")
					return "x", nil
				}, tc.opts...)
				var named *alloc.Error
				if tc.want != nil && !errors.Is(err, tc.want) || !errors.As(err, &named) ||
					!strings.Contains(err.Error(), tc.says) || named.Key != "a/web" || named.Kind != "Gateway" {
					t.Errorf("got %v, want %v", err, tc.want)
				}
			})
		})
	}
}

func TestBadCreates(t *testing.T) {
	bubble(t, func(b *bench) {
		_, err := alloc.Once(b.ctx, b.c, b.get(), "ip", func(context.Context, string) (string, error) { return "", nil })
		if err == nil || !strings.Contains(err.Error(), "no value was returned") {
			t.Errorf("no value: %v", err)
		}
		_, err = alloc.Once(b.ctx, b.c, b.get(), "ip", func(context.Context, string) (string, error) { panic("ouch") })
		var p *alloc.PanicError
		if !errors.As(err, &p) || p.Value != "ouch" || len(p.Stack) == 0 {
			t.Errorf("a panic: %v", err)
		}
		if held := alloc.Held(b.get()); !cmp.Equal(held, []string{"ip"}) {
			t.Errorf("an intent holds the object back: %v", held)
		}
	})
}

func TestAnnotation(t *testing.T) {
	bubble(t, func(b *bench) {
		testbed.Put(t, b.server, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "cm", Finalizers: []string{finalizer}},
		})
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "cm"}} // not watched: every read is live
		var p provider
		for range 2 {
			if ip, err := alloc.Once(b.ctx, b.c, cm, "ip", p.create); err != nil || ip == "" || len(p.keys) != 1 {
				t.Fatalf("got %q, %v, keys %v", ip, err, p.keys)
			}
		}
		if !strings.Contains(cm.Annotations["alloc.fairlead.io/slots"], p.keys[0]) {
			t.Errorf("the annotation is %v", cm.Annotations)
		}
		if err := alloc.Release(b.ctx, b.c, cm, "ip",
			func(context.Context, string, string) error { return nil }); err != nil || len(alloc.Held(cm)) > 0 {
			t.Errorf("released: %v, held %v", err, alloc.Held(cm))
		}
		cm.Annotations = map[string]string{"alloc.fairlead.io/slots": "{"}
		if held := alloc.Held(cm); len(held) != 1 || !strings.Contains(held[0], "malformed") {
			t.Errorf("an unreadable slot holds the object: %v", held)
		}
	})
}

func TestRelease(t *testing.T) {
	bubble(t, func(b *bench) {
		var p provider
		first, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create)
		if err != nil {
			t.Fatal(err)
		}
		var released []string
		busy := true
		release := func(_ context.Context, key, value string) error {
			if s := testbed.Stored(b.server, web).Status.Allocated["ip"]; !s.Releasing {
				t.Errorf("release was called before the release was recorded: %+v", s)
			}
			released = append(released, value)
			if busy {
				busy = false
				return errors.New("it is in use")
			}
			delete(p.made, key)
			return nil
		}
		if err := alloc.Release(b.ctx, b.c, b.get(), "ip", release); err == nil {
			t.Error("no error")
		}
		if _, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create); !errors.Is(err, alloc.ErrReleasing) {
			t.Errorf("while it is being released: %v", err)
		}
		for range 2 {
			if err := alloc.Release(b.ctx, b.c, b.get(), "ip", release); err != nil {
				t.Error(err)
			}
		}
		if !cmp.Equal(released, []string{first, first}) || len(p.made) != 0 || len(alloc.Held(b.get())) != 0 {
			t.Errorf("released %v, left %v", released, p.made)
		}
		second, err := alloc.Once(b.ctx, b.c, b.get(), "ip", p.create)
		if err != nil || second == first || p.keys[0] == p.keys[1] {
			t.Errorf("a reused slot: %q after %q, %v", second, first, err)
		}
		if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := alloc.Release(b.ctx, b.c, testbed.New("a", "web"), "ip", release); err != nil {
			t.Errorf("of a deleted object: %v", err)
		}
	})
}

// The context ends between "created" and "recorded".
func TestTheValueIsRecordedAfterTheContextHasEnded(t *testing.T) {
	bubble(t, func(b *bench) {
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		defer cancel()
		ip, err := alloc.Once(ctx, b.c, b.get(), "ip", func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "late", nil
		})
		if ip != "late" || err != nil || testbed.Stored(b.server, web).Status.Allocated["ip"].Value != "late" {
			t.Errorf("got %q, %v", ip, err)
		}
	})
}

// A resource that cannot be recorded any more is named in the error, and discarded.
func TestOrphans(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason    string
		during    func(b *bench)
		discarded []string
	}{
		{"the object is gone", func(b *bench) { _ = b.server.Remove(testbed.Gateways, "a", "web") }, []string{"mine"}},
		{"another process released the slot", func(b *bench) {
			if err := alloc.Release(b.ctx, b.c, b.get(), "ip",
				func(context.Context, string, string) error { return nil }); err != nil {
				b.t.Error(err)
			}
		}, []string{"mine"}},
		{"another process recorded another value", func(b *bench) {
			testbed.Change(b.t, b.server, testbed.Gateways, web, func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, "other", "status", "allocated", "ip", "value")
			})
		}, nil}, // with the same key
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var discarded []string
				_, err := alloc.Once(b.ctx, b.c, b.get(), "ip", func(context.Context, string) (string, error) {
					tc.during(b)
					return "mine", nil
				}, alloc.Discard(func(_ context.Context, _, value string) error {
					discarded = append(discarded, value)
					return nil
				}))
				var o *alloc.OrphanError
				if !errors.As(err, &o) || o.Value != "mine" || o.IdempotencyKey == "" || o.Discarded != (tc.discarded != nil) ||
					!cmp.Equal(discarded, tc.discarded) {
					t.Errorf("got %v, discarded %v", err, discarded)
				}
			})
		})
	}
}
