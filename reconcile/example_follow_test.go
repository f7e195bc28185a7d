package reconcile_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Accounts reconciles gateways that name a secret.
type Accounts struct {
	Client     *client.Client
	Controller *reconcile.Controller // set before the runtime runs
	Missing    func()
	Ready      func()
}

func (r *Accounts) Reconcile(ctx context.Context, gw *testbed.Gateway) (reconcile.Result, error) {
	key := client.Key{Namespace: gw.Namespace, Name: gw.Spec.Ref}
	err := reconcile.Follow[corev1.Secret](r.Controller, client.KeyOf(gw), "account",
		reconcile.From(cache.Namespaces(key.Namespace), cache.Fields("metadata.name="+key.Name)))
	if err != nil {
		return reconcile.Retry(err)
	}
	secret, err := client.Get[corev1.Secret](ctx, r.Client, key) // after Follow: later changes cause another call
	if apierrors.IsNotFound(err) {
		fmt.Println("waits for", key)
		r.Missing()
		return reconcile.Done, nil
	}
	if err != nil {
		return reconcile.Retry(err)
	}
	fmt.Printf("signs in as %s\n", secret.Data["user"])
	r.Ready()
	return reconcile.Done, nil
}

// A reconciler follows the secret that its object names and watches no other secrets. When the object names another
// secret, the reconciler follows that one.
func ExampleFollow() {
	server, err := apiserver.New(apiserver.Options{Resources: testbed.Resources()})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	gw := testbed.New("team-a", "web")
	gw.Spec.Ref = "account"
	if _, err := server.Put(gw); err != nil {
		panic(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	rt := fairlead.New(server.Config(), fairlead.WithScheme(testbed.Scheme()))
	r := &Accounts{Client: rt.Client(), Ready: stop, Missing: func() {
		_, err := server.Put(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "account"},
			Data:       map[string][]byte{"user": []byte("someone")},
		})
		if err != nil {
			panic(err)
		}
	}}
	r.Controller = reconcile.New[testbed.Gateway](rt, "accounts", r)
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// waits for team-a/account
	// signs in as someone
}
