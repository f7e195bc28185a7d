package controller

import (
	"strings"
	"testing"
)

type vars = map[string]string

func TestExporterOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason string
		env    vars
		on     bool
		fault  string
	}{
		{reason: "nothing"},
		{reason: "a service name alone configures no exporter", env: vars{"OTEL_SERVICE_NAME": "x"}},
		{reason: "an endpoint", env: vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, on: true},
		{
			reason: "the endpoint of traces", env: vars{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/v1/traces"},
			on: true,
		},
		{reason: "the exporter, to the default endpoint", env: vars{"OTEL_TRACES_EXPORTER": "otlp"}, on: true},
		{reason: "grpc", env: vars{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, on: true},
		{reason: "none", env: vars{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}},
		{reason: "disabled", env: vars{"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}},
		{
			reason: "a sampler", on: true,
			env: vars{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio"},
		},
		{
			reason: "an unknown exporter", fault: "OTEL_TRACES_EXPORTER=zipkin",
			env: vars{"OTEL_TRACES_EXPORTER": "zipkin"},
		},
		{
			reason: "an unknown protocol", fault: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json",
			env: vars{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
		},
		{
			reason: "an unknown sampler", fault: "OTEL_TRACES_SAMPLER=some",
			env: vars{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "some"},
		},
		{
			reason: "an endpoint that is not a URL", fault: "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL",
			env: vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
		},
	} {
		made, err := exporterOf(func(name string) string { return tt.env[name] })
		if (made != nil) != tt.on || (err != nil) != (tt.fault != "") ||
			err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: made %t, %v", tt.reason, made != nil, err)
		}
	}
}
