package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkresource "go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

// serviceName is the service name in traces, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES sets another one.
const serviceName = "fairlead-controller"

// flushTime bounds how long a stopping controller waits for the collector to accept the last spans.
const flushTime = 3 * time.Second

// tracing exports spans as the OpenTelemetry variables configure. Nil: no tracing.
type tracing struct {
	provider *sdktrace.TracerProvider
	exporter *quietExporter
}

// newTracing reads the variables. It returns nil if none names an exporter or an endpoint.
func newTracing(ctx context.Context, log *slog.Logger) (*tracing, error) {
	newExporter, err := exporterOf(os.Getenv)
	if err != nil || newExporter == nil {
		return nil, err
	}
	to, err := newExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot send traces: %w", err)
	}
	resource, err := sdkresource.New(ctx, sdkresource.WithAttributes(
		attribute.String("service.name", serviceName), attribute.String("service.version", cli.Version()),
	), sdkresource.WithHost(), sdkresource.WithTelemetrySDK(),
		sdkresource.WithFromEnv()) // the environment takes precedence
	if err != nil {
		log.WarnContext(ctx, "cannot use all of OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	e := &quietExporter{to: to, log: log}
	e.life, e.end = context.WithCancel(context.WithoutCancel(ctx))
	// Sampler, batches and limits come from the environment. Spans that do not fit into the queue are dropped.
	return &tracing{
		provider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(resource)), exporter: e,
	}, nil
}

// tracers returns the provider, or a nil interface without tracing.
func (t *tracing) tracers() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// stop exports the pending spans, within flushTime. The rest is lost.
func (t *tracing) stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.exporter.failed(err)
	}
	t.exporter.end()
}

// exporterOf returns the constructor of the configured exporter, or nil if none is configured.
func exporterOf(env func(string) string) (func(context.Context) (sdktrace.SpanExporter, error), error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	endpoint := firstOf(env, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	switch exporter := env("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return nil, nil
	case "":
		if endpoint.value == "" {
			return nil, nil
		}
	case "otlp":
	default:
		return nil, cli.Usagef("OTEL_TRACES_EXPORTER=%s is not supported: want otlp or none", exporter)
	}
	if endpoint.value != "" {
		u, err := url.Parse(endpoint.value)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, cli.Usagef("%s is not a URL such as http://collector:4318", endpoint.name)
		}
	}
	if sampler := env("OTEL_TRACES_SAMPLER"); !samplers[strings.ToLower(strings.TrimSpace(sampler))] {
		return nil, cli.Usagef("OTEL_TRACES_SAMPLER=%s is not supported: want always_on, always_off, traceidratio, "+
			"or one of them after parentbased_", sampler)
	}
	switch p := firstOf(env, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p.value {
	case "", "http/protobuf":
		return func(ctx context.Context) (sdktrace.SpanExporter, error) { return otlptracehttp.New(ctx) }, nil
	case "grpc":
		return func(ctx context.Context) (sdktrace.SpanExporter, error) { return otlptracegrpc.New(ctx) }, nil
	default:
		return nil, cli.Usagef("%s=%s is not supported: want http/protobuf or grpc", p.name, p.value)
	}
}

// samplers are the samplers of the SDK; "" is its default: parentbased_always_on.
var samplers = map[string]bool{
	"": true, "always_on": true, "always_off": true, "traceidratio": true, "parentbased_always_on": true,
	"parentbased_always_off": true, "parentbased_traceidratio": true,
}

type variable struct{ name, value string }

// firstOf returns the first variable that is set.
func firstOf(env func(string) string, names ...string) variable {
	for _, name := range names {
		if value := env(name); value != "" {
			return variable{name, value}
		}
	}
	return variable{}
}

// quietExporter forwards spans. If the collector refuses them, it logs that once, and the spans are lost.
type quietExporter struct {
	to   sdktrace.SpanExporter
	log  *slog.Logger
	warn sync.Once
	life context.Context //nolint:containedctx // until the process ends
	end  context.CancelFunc
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error, because the SDK would write each one to stderr.
func (e *quietExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	if err := e.to.ExportSpans(ctx, spans); err != nil {
		e.failed(err)
	}
	return nil
}

func (e *quietExporter) failed(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the collector did not answer in time: %w", err)
	}
	e.warn.Do(func() {
		e.log.Warn("cannot send traces: spans are lost until the collector accepts them; logged once", "error", err)
	})
}

// Shutdown implements sdktrace.SpanExporter.
func (e *quietExporter) Shutdown(ctx context.Context) error { return e.to.Shutdown(ctx) }
