// Command showcase schedules operations that succeed, fail, wait for each other and are retried many times, as demo
// data for the console. It needs the receiver, whose endpoints misbehave on request, and the operations controller.
// Both run in `make up`.
//
// A second start schedules only the operations that do not exist yet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func main() {
	receiver := flag.String("receiver", "http://127.0.0.1:8090", "`URL` of the receiver")
	namespace := flag.String("namespace", "default", "`namespace` of the operations")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := fairlead.Config("")
	if err == nil {
		err = run(ctx, cfg, *receiver, *namespace, log)
	}
	if err != nil && ctx.Err() == nil {
		log.Error("cannot go on", "error", err)
		os.Exit(1)
	}
}

// webhooks returns the endpoints of the receiver as Webhooks. Their names are those that the operations use.
func webhooks(receiver, namespace string) (all []*v1alpha1.Webhook) {
	again := func(w *v1alpha1.WebhookSpec) { w.Retry.MaxAttempts = 1000 }
	for name, change := range map[string]func(*v1alpha1.WebhookSpec){
		"cleanup": func(*v1alpha1.WebhookSpec) {},
		"slow": func(w *v1alpha1.WebhookSpec) {
			w.Mode, w.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: time.Second}
		},
		"never": func(w *v1alpha1.WebhookSpec) {
			w.Mode, w.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: time.Minute}
		},
		"fail": again, "busy": again,
		"gone": func(w *v1alpha1.WebhookSpec) { w.Retry.MaxAttempts = 1 },
	} {
		hook := &v1alpha1.Webhook{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Webhook"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "showcase-" + name},
			Spec:       v1alpha1.WebhookSpec{Request: v1alpha1.WebhookRequest{URL: receiver + "/" + name}},
		}
		change(&hook.Spec)
		all = append(all, hook)
	}
	return all
}

// requests returns the operations in the order in which they are scheduled.
func requests() []operations.Request {
	demo := func(id string, of v1alpha1.OperationType, hooks ...string) operations.Request {
		r := operations.Request{
			Type: of, Category: "showcase", CorrelationID: "showcase-" + id,
			Resource: operations.Resource{Type: "Showcase", ID: id},
		}
		for _, h := range hooks {
			r.Webhooks = append(r.Webhooks, "showcase-"+h)
		}
		return r
	}
	locking := demo("lock-holder", v1alpha1.OperationUpdate, "never")
	locking.Lock = []operations.Resource{{Type: "Showcase", ID: "ledger"}}
	locked := demo("waits-for-lock", v1alpha1.OperationUpdate, "cleanup")
	locked.Lock = locking.Lock
	return []operations.Request{
		demo("succeeds", v1alpha1.OperationCreate, "cleanup"),
		demo("succeeds-after-polls", v1alpha1.OperationUpdate, "cleanup", "slow"),
		demo("fails", v1alpha1.OperationUpdate, "gone"), demo("tries-again", v1alpha1.OperationDelete, "fail"),
		demo("is-told-to-wait", v1alpha1.OperationUpdate, "busy"), demo("polls-for-long", v1alpha1.OperationCreate, "never"),
		demo("webhook-missing", v1alpha1.OperationCreate, "not-there"), locking, locked,
	}
}

func run(ctx context.Context, cfg *rest.Config, receiver, namespace string, log *slog.Logger) error {
	types := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(types); err != nil {
		return err
	}
	rt := fairlead.New(cfg, fairlead.WithScheme(types), fairlead.WithFieldOwner("showcase"), fairlead.WithLogger(log))
	scheduler, err := operations.NewScheduler(operations.Options{Config: cfg, Namespace: namespace, Logger: log})
	if err != nil {
		return err
	}
	defer scheduler.Close()
	rt.Add("showcase", func(ctx context.Context) error {
		if err := show(ctx, rt.Client(), scheduler, receiver, namespace); err != nil {
			return err
		}
		log.InfoContext(ctx, "the operations of the showcase are scheduled", "namespace", namespace)
		<-ctx.Done()
		return nil
	})
	return rt.Run(ctx)
}

// show creates the Webhooks and schedules the operations that do not exist yet.
func show(ctx context.Context, c *client.Client, s *operations.Scheduler, receiver, namespace string) error {
	for _, hook := range webhooks(receiver, namespace) {
		if err := c.Apply(ctx, hook); err != nil {
			return fmt.Errorf("cannot make the Webhook %s: %w", hook.Name, err)
		}
	}
	for _, r := range requests() {
		_, err := s.Get(ctx, r.Resource)
		if errors.Is(err, operations.ErrNotFound) {
			_, err = s.Schedule(ctx, r)
		}
		if err != nil && !errors.Is(err, operations.ErrInProgress) {
			return err
		}
	}
	return nil
}
