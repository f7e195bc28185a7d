package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// Limits of one request. The API server accepts objects of 3 MiB and sends up to two of them. A conversion request
// contains all objects of one page of a list.
const (
	maxReview     = 8 << 20
	maxConversion = 64 << 20
	maxTimeout    = 30 * time.Second
)

// maxRequests bounds the concurrent hook requests; further requests wait. Conversions may additionally use an eighth of
// it.
const maxRequests = 64

// server answers the requests of the API server. Its state is the number of requests in progress.
type server struct {
	log     *slog.Logger
	metrics *metrics
	tracer  tracer
	// Places for hook requests and for conversions. They are separate, since a hook may read an object that needs a
	// conversion.
	hookPlaces, conversionPlaces chan struct{}
}

func newServer(log *slog.Logger, m *metrics, t tracer) *server {
	return &server{
		log: log, metrics: m, tracer: t,
		hookPlaces: make(chan struct{}, maxRequests), conversionPlaces: make(chan struct{}, maxRequests/8),
	}
}

// handler returns the handler for hooks and conversions.
func (s *server) handler(hooks []*hook, converters []*converter) http.Handler {
	mux := http.NewServeMux()
	for _, k := range hooks {
		mux.Handle("POST "+k.path(), s.bounded(s.hookPlaces, maxReview, k.Timeout,
			func(ctx context.Context, w http.ResponseWriter, body []byte) { s.review(ctx, w, k, body) }))
	}
	for _, c := range converters {
		mux.Handle("POST "+c.path(), s.bounded(s.conversionPlaces, maxConversion, maxTimeout,
			func(ctx context.Context, w http.ResponseWriter, body []byte) { s.convert(ctx, w, c, body) }))
	}
	return mux
}

// bounded reads a JSON body when a place is free. It gives up when the caller has stopped waiting.
func (s *server) bounded(
	places chan struct{}, limit int64, timeout time.Duration, answer func(context.Context, http.ResponseWriter, []byte),
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait := timeout
		if asked, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && asked > 0 {
			wait = min(asked, maxTimeout)
		}
		ctx, cancel := context.WithTimeout(s.tracer.incoming(r), wait)
		defer cancel()
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			s.refuse(w, "content type", http.StatusUnsupportedMediaType, "the content type must be application/json")
			return
		}
		if r.ContentLength > limit {
			s.refuse(w, "too large", http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", limit))
			return
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-ctx.Done():
			s.refuse(w, "busy", http.StatusServiceUnavailable, "too many concurrent requests")
			return
		}
		until, _ := ctx.Deadline()
		_ = http.NewResponseController(w).SetReadDeadline(until) // on an error there is no connection to bound
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			s.refuse(w, "too large", http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", limit))
		case err != nil:
			s.refuse(w, "unreadable", http.StatusBadRequest, "the body cannot be read")
		default:
			answer(ctx, w, body)
		}
	})
}

// refuse answers an invalid request. Such a request does not come from the API server, or is in an unknown format.
func (s *server) refuse(w http.ResponseWriter, why string, code int, text string) {
	s.metrics.refused.WithLabelValues(why).Inc()
	http.Error(w, text, code)
}

// review answers one AdmissionReview. An undecided request gets a 500, so that the failure policy decides.
func (s *server) review(ctx context.Context, w http.ResponseWriter, k *hook, body []byte) {
	in, err := readReview(body)
	if err != nil {
		s.refuse(w, "garbage", http.StatusBadRequest, err.Error())
		return
	}
	if !slices.Contains(k.Operations, in.Operation) { // the operation becomes a metric label
		s.refuse(w, "garbage", http.StatusBadRequest, fmt.Sprintf("hook %s does not handle %q", k.Name, in.Operation))
		return
	}
	start := time.Now()
	var out outcome
	ctx, end := s.tracer.begin(ctx, k.Name, strings.ToLower(string(in.Operation)), in.Namespace)
	finish := func(result string) {
		end(result)
		s.metrics.requests.WithLabelValues(k.Name, strings.ToLower(string(in.Operation)), result).Inc()
		s.metrics.seconds.WithLabelValues(k.Name).Observe(time.Since(start).Seconds())
	}
	log := s.log.With("hook", k.Name, "operation", in.Operation, "namespace", in.Namespace, "name", in.Name,
		"user", in.UserInfo.Username, "uid", in.UID)
	failed := func(err error) {
		finish("failed")
		log.ErrorContext(ctx, "a hook could not decide", "policy", k.OnFailure, "error", err)
		http.Error(w, fmt.Sprintf("hook %s could not decide", k.Name), http.StatusInternalServerError)
	}
	p := protect.CallOr(func() { out, err = k.answer(ctx, in) }, func() { failed(errors.New("it ended its goroutine")) })
	var bad badRequest
	switch {
	case p != nil:
		failed(fmt.Errorf("it panicked: %w", p))
		return
	case errors.As(err, &bad):
		finish("failed")
		log.ErrorContext(ctx, "a request cannot be decoded", "policy", k.OnFailure, "error", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		failed(err)
		return
	}
	response := &admissionv1.AdmissionResponse{
		UID: in.UID, Allowed: out.denial == nil, Result: out.denial, Warnings: out.warnings,
	}
	if out.denial != nil {
		finish("denied")
		log.InfoContext(ctx, "a hook refused", "code", out.denial.Code, "reason", out.denial.Reason,
			"message", out.denial.Message)
	} else {
		finish("allowed")
	}
	if out.patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = out.patch, &kind
	}
	write(w, admissionv1.AdmissionReview{TypeMeta: reviewType, Response: response})
}

var (
	reviewType = metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
	// conversionType is the type of conversion requests.
	conversionType = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "ConversionReview"}
)

func readReview(body []byte) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, fmt.Errorf("cannot read the review: %w", err)
	}
	switch {
	case review.TypeMeta != reviewType:
		return nil, fmt.Errorf("cannot read the review: it is a %q of %q, must be an %s of %s", review.Kind,
			review.APIVersion, reviewType.Kind, reviewType.APIVersion)
	case review.Request == nil || review.Request.UID == "":
		return nil, errors.New("cannot read the review: it has no request with a uid")
	}
	return review.Request, nil
}

func write(w http.ResponseWriter, answer any) {
	raw, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw) // an error means that the caller has disconnected
}
