package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/internal/interrupt"
)

func main() {
	// client-go and OpenTelemetry would log errors to stderr that they also return
	klog.SetLogger(logr.Discard())
	otel.SetLogger(logr.Discard())
	// a second signal ends the program at once
	ctx, _ := interrupt.Context(context.Background(), os.Interrupt, syscall.SIGTERM)
	os.Exit(runAs(ctx, filepath.Base(os.Args[0]), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
