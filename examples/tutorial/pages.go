package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/fairlead-io/fairlead"
)

// servePages serves the pages of rt by HTTPS, with a certificate that callers cannot verify. /healthz and /readyz are
// open. All other pages need a token of the cluster. /metrics is an alias of /debug/metrics, which the guard of
// controller.InCluster covers.
func servePages(rt *fairlead.Runtime, address string) error {
	certificate, key, err := cert.GenerateSelfSignedCertKey("sites", nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	pages := rt.Handler()
	rt.Handle("/debug/metrics", http.StripPrefix("/debug", pages))
	server := &http.Server{
		Addr: address, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				r.URL.Path = "/debug/metrics"
			}
			pages.ServeHTTP(w, r)
		}),
	}
	rt.AddAlways("pages", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.ListenAndServeTLS("", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}
