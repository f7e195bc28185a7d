package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead-io/fairlead/operations"
)

// service is the HTTP API of the director.
type service struct {
	apps      *applications
	scheduler *operations.Scheduler
	log       *slog.Logger
}

func (s *service) handler(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /applications", s.register)
	mux.HandleFunc("GET /applications", s.list)
	mux.HandleFunc("GET /applications/{id}", s.get)
	mux.Handle("DELETE /applications/{id}", operations.Async(
		operations.AsyncOptions{Scheduler: s.scheduler, Logger: s.log}, s.unregister))
	mux.Handle("/operations/", api)
	mux.Handle("/operations", api)
	return mux
}

func (s *service) register(w http.ResponseWriter, r *http.Request) {
	var app Application
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(&app); err != nil {
		s.refuse(w, r, &refusal{http.StatusBadRequest, "cannot read the body: " + err.Error()})
		return
	}
	if err := check(app); err != nil {
		s.refuse(w, r, err)
		return
	}
	app, err := s.apps.create(r.Context(), app)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Location", "/applications/"+app.ID)
	answer(w, http.StatusCreated, app)
}

func check(app Application) error {
	if app.Name == "" {
		return &refusal{http.StatusUnprocessableEntity, "name is required"}
	}
	if app.Webhook == nil {
		return nil
	}
	if u, err := url.Parse(app.Webhook.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return &refusal{http.StatusUnprocessableEntity, "webhook.url must be an http or https URL"}
	}
	switch app.Webhook.Mode {
	case "", "Sync", "Async":
		return nil
	default:
		return &refusal{http.StatusUnprocessableEntity, "webhook.mode must be Sync or Async"}
	}
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	apps, err := s.apps.list(r.Context())
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, apps)
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	app, err := s.apps.get(r.Context(), r.PathValue("id"))
	if err == nil && !app.Ready {
		app, err = s.settle(r.Context(), app)
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, app)
}

// settle applies the outcome of a finished operation if the watcher has not done so yet. A caller that has seen the
// operation end therefore also sees its effect.
func (s *service) settle(ctx context.Context, app Application) (Application, error) {
	op, err := s.scheduler.Get(ctx, operations.Resource{Type: resourceType, ID: app.ID})
	if errors.Is(err, operations.ErrNotFound) || err == nil && (op.EffectiveID() != app.operationID || !op.Terminal()) {
		return app, nil // not scheduled or not finished yet
	}
	if err != nil {
		return app, err
	}
	if err := s.apps.ended(ctx, app.ID, app.operationID, operations.ViewOf(op).Error); err != nil {
		return app, err
	}
	return s.apps.get(ctx, app.ID)
}

// pending returns the view of an operation that is still in the outbox.
func (s *service) pending(ctx context.Context, _ string, r operations.Resource) (operations.View, bool) {
	app, err := s.apps.get(ctx, r.ID)
	if err != nil || app.Ready || r.Type != resourceType {
		return operations.View{}, false
	}
	request := unregistration(app, app.operationID)
	return operations.View{
		OperationID: request.ID, OperationType: request.Type, OperationCategory: request.Category, ResourceType: r.Type,
		ResourceID: r.ID, CorrelationID: request.CorrelationID, Status: operations.InProgress,
		Progress: operations.Progress{Total: len(request.Webhooks)}, CreatedAt: time.Now().UTC(),
	}, true
}

// unregister starts the operation. operations.Async waits for it and writes the response.
func (s *service) unregister(ctx context.Context, r *http.Request, id string) (operations.Request, error) {
	return s.apps.unregister(ctx, r.PathValue("id"), id)
}

func (s *service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var known *refusal
	if !errors.As(err, &known) {
		s.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		known = &refusal{http.StatusInternalServerError, "the director failed; see its log"}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(known.status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // fails if the client has disconnected
		"title": http.StatusText(known.status), "status": known.status, "detail": known.text,
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails if the client has disconnected
}
