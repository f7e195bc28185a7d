// Command shop is an API service that unregisters applications with an operation.
package main

import (
	"context"
	"log"
	"log/slog"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

const namespace = "default" // of the Webhook and the operations

type service struct {
	scheduler *operations.Scheduler
	log       *slog.Logger
}

// unregister begins the operation of a DELETE request. id is the header Idempotency-Key, or a new id.
func (s *service) unregister(ctx context.Context, r *http.Request, id string) (operations.Request, error) {
	app := r.PathValue("id")
	request := operations.Request{
		ID: id, Type: operations.Delete, Category: "unregisterApplication",
		Resource: operations.Resource{Type: "Application", ID: app},
		Webhooks: []string{"cleanup"},
		Object:   map[string]string{"id": app}, // templates of the Webhook read it as .Resource
	}
	_, err := s.scheduler.Schedule(ctx, request) // operations.ErrInProgress becomes a 409
	return request, err
}

// ended applies the outcome of an operation to the data of the service. It may be called again after a restart.
func (s *service) ended(ctx context.Context, e observe.Event[v1alpha1.Operation]) error {
	op := e.Object()
	if op == nil || e.Type == observe.Deleted || !op.Terminal() {
		return nil
	}
	v := operations.ViewOf(op)
	s.log.InfoContext(ctx, "operation ended", "resource", v.ResourceID, "status", v.Status, "error", v.Error)
	return nil
}

func run(ctx context.Context, log *slog.Logger) error {
	cfg, err := fairlead.Config("")
	if err != nil {
		return err
	}
	scheduler, err := operations.NewScheduler(operations.Options{Config: cfg, Namespace: namespace})
	if err != nil {
		return err
	}
	defer scheduler.Close()
	s := &service{scheduler, log}

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	rt := fairlead.New(cfg, fairlead.WithScheme(scheme), fairlead.WithSignals(), fairlead.WithLogger(log))
	observe.Source[v1alpha1.Operation](rt, "operations", cache.Namespaces(namespace))
	observe.On(rt, "operations", s.ended, observe.Name("outcomes"))
	rt.Add("http", func(ctx context.Context) error {
		listener, err := net.Listen("tcp", "127.0.0.1:8088")
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.Handle("DELETE /applications/{id}",
			operations.Async(operations.AsyncOptions{Scheduler: scheduler}, s.unregister))
		return fairlead.Serve(ctx, listener, mux)
	})
	return rt.Run(ctx)
}

func main() {
	if err := run(context.Background(), slog.Default()); err != nil {
		log.Fatal(err)
	}
}
