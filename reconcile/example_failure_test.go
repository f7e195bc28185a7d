package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Sites sets up gateways and reports the result in their status.
type Sites struct {
	Client *client.Client
	Up     func(ctx context.Context, gw *testbed.Gateway) error
}

func (r *Sites) Reconcile(ctx context.Context, gw *testbed.Gateway) (reconcile.Result, error) {
	err := r.Up(ctx, gw)
	// Users see the failure in the status. Each attempt writes the status if the text of the error differs each time. An
	// error with a request id therefore needs a fixed text.
	status := client.ModifyStatus(ctx, r.Client, gw, func(gw *testbed.Gateway) error {
		if err != nil {
			reconcile.SetCondition(gw, &gw.Status.Conditions, "Ready", metav1.ConditionFalse, "Failed", err.Error())
		} else {
			reconcile.SetCondition(gw, &gw.Status.Conditions, "Ready", metav1.ConditionTrue, "Up", "")
		}
		return nil
	})
	// The error is returned all the same, joined with that of the write. It is logged and counted, and leads to another
	// attempt after the back-off. The own write of the status leads to none.
	return reconcile.Retry(errors.Join(err, status))
}

// A reconciler reports a failure in the status of the object, and still fails.
func ExampleSetCondition() {
	server, err := apiserver.New(apiserver.Options{Resources: testbed.Resources()})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	if _, err := server.Put(testbed.New("team-a", "web")); err != nil {
		panic(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	rt := fairlead.New(server.Config(), fairlead.WithScheme(testbed.Scheme()))
	attempts := 0
	sites := &Sites{rt.Client(), func(ctx context.Context, gw *testbed.Gateway) error {
		for _, c := range gw.Status.Conditions {
			fmt.Println("the status says:", c.Type, c.Status, c.Reason, c.Message)
		}
		if attempts++; attempts == 1 {
			return errors.New("no addresses are left")
		}
		defer stop()
		return nil
	}}
	reconcile.New[testbed.Gateway](rt, "sites", sites,
		reconcile.WithBackoff(reconcile.Backoff{Base: 10 * time.Millisecond}),
		reconcile.OnFailure(func(f reconcile.Failure) { fmt.Println(f.Err) }))
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// cannot reconcile team-a/web with "sites": no addresses are left
	// the status says: Ready False Failed no addresses are left
}
