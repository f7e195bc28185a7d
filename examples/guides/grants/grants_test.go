package grants

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vault has the password of each Grant. It is safe for concurrent use.
type vault struct {
	mu        sync.Mutex
	passwords map[string]string
}

func (v *vault) Store(_ context.Context, name string, data map[string][]byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.passwords[name] = string(data["password"])
	return nil
}

func (v *vault) password(name string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.passwords[name]
}

// A Grant waits for its Secret, and follows it, also after a restart.
func TestGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true, Resources: append(apiserver.DefaultResources(),
			apiserver.Resource{
				Group: group.Group, Version: group.Version, Resource: "grants", Kind: "Grant", Namespaced: true,
				Subresources: []string{"status"},
			})})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		user, err := client.New(client.Options{Config: server.Config(), Scheme: newScheme()})
		if err != nil {
			t.Fatal(err)
		}
		defer user.Close()
		stored := &vault{passwords: map[string]string{}}
		run := func() (stop func()) {
			rt := fairlead.New(server.Config(), fairlead.WithScheme(newScheme()))
			Declare(rt, stored)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- rt.Run(ctx) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		want := func(when, password string) {
			t.Helper()
			time.Sleep(time.Minute) // of the fake clock
			if got := stored.password("web"); got != password {
				t.Errorf("%s: stored is %q, want %q", when, got, password)
			}
		}
		set := func(password string) {
			t.Helper()
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "login"}}
			change := func(s *corev1.Secret) error { s.Data = map[string][]byte{"password": []byte(password)}; return nil }
			if err := client.Modify(t.Context(), user, secret, change); err != nil {
				t.Fatal(err)
			}
		}
		stop := run()
		grant := &Grant{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web"}, Spec: GrantSpec{Secret: "login"},
		}
		if err := user.Create(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
		want("without its Secret", "")
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "login"},
			Data:       map[string][]byte{"password": []byte("one")},
		}
		if err := user.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		want("after its Secret appears", "one")
		set("two")
		want("after its Secret changes", "two")
		stop()
		set("three")
		stop = run()
		defer stop()
		want("after a change while no process runs", "three")
		set("four")
		want("after a change after the restart", "four")
		if err := user.Get(t.Context(), client.KeyOf(grant), grant); err != nil {
			t.Fatal(err)
		}
		ready := meta.FindStatusCondition(grant.Status.Conditions, "Ready")
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != grant.Generation {
			t.Errorf("the condition is %+v", ready)
		}
	})
}
