package main

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
)

// serviceName is what traces call the controller, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES do.
const serviceName = "fairlead-controller"

// flushTime bounds how long the end of the controller waits for a collector to take the last spans.
const flushTime = 3 * time.Second

// tracing sends spans where the variables of OpenTelemetry say; nil: nowhere.
type tracing struct {
	provider *sdktrace.TracerProvider
	outlet   *outlet
}

// newTracing reads the variables; without any that names an exporter or an endpoint there is no tracing.
func newTracing(ctx context.Context, log *slog.Logger) (*tracing, error) {
	make, err := exporterOf(os.Getenv)
	if err != nil || make == nil {
		return nil, err
	}
	to, err := make(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot send traces: %w", err)
	}
	about, err := sdkresource.New(ctx, sdkresource.WithAttributes(
		attribute.String("service.name", serviceName), attribute.String("service.version", version()),
	), sdkresource.WithHost(), sdkresource.WithTelemetrySDK(),
		sdkresource.WithFromEnv()) // which has the last word
	if err != nil {
		log.WarnContext(ctx, "not all of what OTEL_RESOURCE_ATTRIBUTES says can be used", "error", err)
	}
	o := &outlet{to: to, log: log}
	o.life, o.end = context.WithCancel(context.WithoutCancel(ctx))
	// Sampler, batches and limits are those of the environment; what finds no place in the queue is dropped.
	return &tracing{
		provider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(o), sdktrace.WithResource(about)), outlet: o,
	}, nil
}

// tracers returns the provider as the library takes it.
func (t *tracing) tracers() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// stop sends what has not been sent yet, within flushTime. What is left then is lost.
func (t *tracing) stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.outlet.failed(err)
	}
	t.outlet.end()
}

// exporterOf says what makes the exporter that the environment asks for; nil: it asks for none.
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
		return nil, usageErrorf("OTEL_TRACES_EXPORTER=%s is not supported: want otlp or none", exporter)
	}
	if endpoint.value != "" {
		u, err := url.Parse(endpoint.value)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, usageErrorf("%s is not a URL such as http://collector:4318", endpoint.name)
		}
	}
	if sampler := env("OTEL_TRACES_SAMPLER"); !samplers[strings.ToLower(strings.TrimSpace(sampler))] {
		return nil, usageErrorf("OTEL_TRACES_SAMPLER=%s is not supported: want always_on, always_off, traceidratio, "+
			"or one of them after parentbased_", sampler)
	}
	switch p := firstOf(env, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p.value {
	case "", "http/protobuf":
		return func(ctx context.Context) (sdktrace.SpanExporter, error) { return otlptracehttp.New(ctx) }, nil
	case "grpc":
		return func(ctx context.Context) (sdktrace.SpanExporter, error) { return otlptracegrpc.New(ctx) }, nil
	default:
		return nil, usageErrorf("%s=%s is not supported: want http/protobuf or grpc", p.name, p.value)
	}
}

// samplers are those that the SDK knows, "" for its default: parentbased_always_on.
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

// outlet sends spans on. A collector that does not take them is told of once, and what it does not take is lost.
type outlet struct {
	to   sdktrace.SpanExporter
	log  *slog.Logger
	told sync.Once
	life context.Context //nolint:containedctx // until the process is about to end
	end  context.CancelFunc
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error: the SDK would write it to stderr, each time.
func (o *outlet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.life, cancel)()
	if err := o.to.ExportSpans(ctx, spans); err != nil {
		o.failed(err)
	}
	return nil
}

func (o *outlet) failed(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the collector takes too long: %w", err)
	}
	o.told.Do(func() {
		o.log.Warn("cannot send traces: spans are lost until the collector takes them; this is said once", "error", err)
	})
}

// Shutdown implements sdktrace.SpanExporter.
func (o *outlet) Shutdown(ctx context.Context) error { return o.to.Shutdown(ctx) }
