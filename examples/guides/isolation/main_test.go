package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIsolation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{
			Pipe: true, // all connections are in memory, so the fake clock advances
			Resources: append(apiserver.DefaultResources(), apiserver.Resource{
				Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies", Kind: "NetworkPolicy",
				Namespaced: true,
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		user, err := client.New(client.Options{Config: server.Config()})
		if err != nil {
			t.Fatal(err)
		}
		defer user.Close()

		// The server refuses the first two applies. The retries cost no real time.
		applies := apiserver.Match{Verb: "patch", Resource: "networkpolicies"}
		refused := applies
		refused.Times = 2
		server.On(refused, apiserver.Answer(apiserver.Failure(503)))

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- newOperator(server.Config()).Run(ctx) }()

		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "team-a", Labels: map[string]string{"example.com/isolated": "true"},
		}}
		if err := user.Create(ctx, ns); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of the fake clock
		policy, key := &networkingv1.NetworkPolicy{}, client.Key{Namespace: "team-a", Name: "deny-ingress"}
		if err := user.Get(ctx, key, policy); err != nil {
			t.Errorf("no policy: %v", err)
		}
		if n := server.Log().Count(applies); n != 3 {
			t.Errorf("%d applies", n)
		}

		release := func(ns *corev1.Namespace) error { delete(ns.Labels, "example.com/isolated"); return nil }
		if err := client.Modify(ctx, user, ns, release); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := user.Get(ctx, key, policy); !apierrors.IsNotFound(err) {
			t.Errorf("the policy is still there: %v", err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
