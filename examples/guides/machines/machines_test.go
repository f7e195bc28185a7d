package machines

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cloud records the calls. A machine runs when it is asked for the second time.
type cloud struct{ calls []string }

func (c *cloud) call(words ...string) { c.calls = append(c.calls, strings.Join(words, " ")) }

func (c *cloud) ReserveIP(context.Context, string) (string, error) {
	c.call("reserve")
	return "192.0.2.1", nil
}

func (c *cloud) ReleaseIP(_ context.Context, _, ip string) error { c.call("release", ip); return nil }

func (c *cloud) Boot(_ context.Context, name, ip string) error { c.call("boot", name, ip); return nil }

func (c *cloud) Stop(_ context.Context, name string) error { c.call("stop", name); return nil }

func (c *cloud) Running(_ context.Context, name string) (bool, error) {
	c.call("running", name)
	return strings.Count(strings.Join(c.calls, ", "), "running") > 1, nil
}

func TestMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true, Resources: append(apiserver.DefaultResources(),
			apiserver.Resource{
				Group: group.Group, Version: group.Version, Resource: "machines", Kind: "Machine", Namespaced: true,
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
		provider := &cloud{}
		rt := fairlead.New(server.Config(), fairlead.WithScheme(newScheme()))
		Declare(rt, provider)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- rt.Run(ctx) }()

		m := &Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web"}}
		if err := user.Create(ctx, m); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of the fake clock
		if err := user.Get(ctx, client.KeyOf(m), m); err != nil || m.Status.ReadyGeneration != m.Generation {
			t.Errorf("the machine is not ready: %+v, %v", m.Status, err)
		}
		if err := user.Delete(ctx, m); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if err := user.Get(ctx, client.KeyOf(m), m); !apierrors.IsNotFound(err) {
			t.Errorf("the machine is still there: %v", err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := "reserve, boot web 192.0.2.1, running web, running web, stop web, release 192.0.2.1"
		if got := strings.Join(provider.calls, ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
