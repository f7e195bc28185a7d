package e2e_test

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// collector receives spans by both protocols of OTLP.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	url, grpcURL string

	mu       sync.Mutex
	spans    []*tracepb.Span
	resource map[string]string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collectorpb.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		_, _ = c.Export(r.Context(), &request)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	remote := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(remote, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = remote.Serve(listener) })
	t.Cleanup(func() { remote.Stop(); serving.Wait() })
	c.url, c.grpcURL = server.URL, "http://"+listener.Addr().String()
	return c
}

// Export implements the trace service.
func (c *collector) Export(
	_ context.Context, r *collectorpb.ExportTraceServiceRequest,
) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		c.resource = map[string]string{}
		for _, a := range of.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// named returns the spans of a name, ordered by start.
func (c *collector) named(name string) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := slices.DeleteFunc(slices.Clone(c.spans), func(s *tracepb.Span) bool { return s.Name != name })
	slices.SortFunc(found, func(a, b *tracepb.Span) int {
		return int(int64(a.StartTimeUnixNano - b.StartTimeUnixNano))
	})
	return found
}

// terminate ends a controller, which must succeed.
func (s *site) terminate(p *process) {
	s.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	if err := p.end(s.ctx, s.t); err != nil {
		s.t.Errorf("%v\n%s", err, p.log)
	}
}

// TestTraces: a trace leads from the API's caller to the receiver, across the death of a process, by both protocols.
// Pending spans are sent at the end of the process.
func TestTraces(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c, s := newCollector(t), newSite(t, env.Config(t))
			endpoint := map[string]string{"http/protobuf": c.url, "grpc": c.grpcURL}[protocol]
			s.env = []string{
				"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol,
				"OTEL_RESOURCE_ATTRIBUTES=team=shop", "OTEL_BSP_SCHEDULE_DELAY=50",
			}
			inner := s.receiver.Config.Handler
			var calls atomic.Int32
			s.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := calls.Add(1)
				if n == 1 {
					w.Header().Set("Retry-After", "10")
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				inner.ServeHTTP(w, r)
			})
			s.webhook("first", "/", nil)
			p := s.controller(s.kubeconfig, "--insecure-no-auth")
			at := strings.TrimSpace(<-p.address)
			request, err := http.NewRequestWithContext(s.ctx, http.MethodPost, "http://"+at+"/operations",
				strings.NewReader(`{"operationType":"Delete","resourceType":"app","resourceID":"0",`+
					`"webhookIDs":["first"]}`))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("traceparent", "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01")
			answer, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			res := operations.Resource{Type: "app", ID: "0"}
			var op *v1alpha1.Operation
			s.eventually("the next try is recorded", func() bool {
				op, err = s.scheduler.Get(s.ctx, res)
				return err == nil && len(op.Status.Webhooks) == 1 && op.Status.Webhooks[0].NextAttemptAt != nil
			})
			s.eventually("the spans were exported before the process is killed", func() bool {
				return len(c.named("call first")) == 1 && len(c.named("POST /operations")) == 1
			})
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = p.end(s.ctx, t) // killed
			p = s.controller(s.kubeconfig, "--insecure-no-auth")
			<-p.address
			if _, err := s.scheduler.Wait(s.ctx, res, op.EffectiveID(), nil); err != nil {
				t.Fatal(err)
			}
			s.terminate(p)

			const caller = "0102030405060708090a0b0c0d0e0f10"
			served := c.named("POST /operations")
			if len(served) != 1 || hex.EncodeToString(served[0].TraceId) != caller ||
				hex.EncodeToString(served[0].ParentSpanId) != "0102030405060708" {
				t.Errorf("the request of the caller: %v", served)
			}
			attempts := c.named("call first")
			if len(attempts) != 2 || hex.EncodeToString(attempts[0].TraceId) != caller {
				t.Fatalf("the attempts: %v", attempts)
			}
			var again *tracepb.Span // the operation in the second process
			for _, s := range c.named("operation") {
				if string(s.TraceId) == string(attempts[1].TraceId) {
					again = s
				}
			}
			if again == nil || len(again.ParentSpanId) > 0 || len(again.Links) != 1 ||
				hex.EncodeToString(again.Links[0].TraceId) != caller {
				t.Errorf("the second process has %v", again)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.resource["service.name"] != "fairlead-controller" || c.resource["team"] != "shop" ||
				c.resource["host.name"] == "" {
				t.Errorf("they are of %v", c.resource)
			}
		})
	}
}

// TestUnreachableCollector: a collector that refuses connections or never answers causes one line in the log.
// Operations continue, and the end of the process is not delayed for long.
func TestUnreachableCollector(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, endpoint := range map[string]string{
		"not there": "http://127.0.0.1:1", "silent": "http://" + silent.Addr().String(),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, env.Config(t))
			s.env = []string{
				"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_BSP_EXPORT_TIMEOUT=200",
				"OTEL_BSP_MAX_QUEUE_SIZE=64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=8",
				"OTEL_EXPORTER_OTLP_HEADERS=authorization=hidden7f3a",
			}
			s.webhook("first", "/", nil)
			p := s.controller(s.kubeconfig, "--insecure-no-auth")
			<-p.address
			for range 3 {
				s.allSucceeded(s.scheduleMany(20, operations.Request{Webhooks: []string{"first"}}), "first")
				s.mu.Lock()
				clear(s.effects)
				s.mu.Unlock()
			}
			ends := func(p *process) time.Duration {
				begun := time.Now()
				s.terminate(p)
				return time.Since(begun)
			}
			took := ends(p)
			s.env = nil
			plain := s.controller(s.kubeconfig, "--insecure-no-auth")
			<-plain.address
			if usual := ends(plain); took > 13*time.Second+3*usual {
				t.Errorf("the end took %v, and %v without a collector", took, usual)
			}
			if n := strings.Count(p.log.String(), "cannot send traces"); n != 1 {
				t.Errorf("the log says so %d times:\n%s", n, p.log)
			}
			if strings.Contains(p.log.String(), "hidden7f3a") {
				t.Error("the header is in the log")
			}
		})
	}
}
