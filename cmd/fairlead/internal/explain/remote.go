package explain

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

// remote identifies a program with pages, and the credentials for it.
type remote struct{ url, token, authority string }

// flags adds the flags of commands that query a program.
func (r *remote) flags(f *pflag.FlagSet, address, what, wants string) {
	f.StringVar(&r.url, "url", address, "`URL` of "+what)
	f.StringVar(&r.token, "token", "", "bearer `token`; fairlead controller needs one of a user who may "+wants)
	f.StringVar(&r.authority, "certificate-authority", "",
		"`file` with the CA certificates of an https server, PEM (default: those of this machine)")
}

// parse returns the URL.
func (r *remote) parse() (*url.URL, error) {
	u, err := url.Parse(r.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, cli.Usagef("--url %q is not a URL", r.url)
	}
	return u, nil
}

// get requests a page. The caller must close the body of the answer, and call done.
func (r *remote) get(ctx context.Context, u *url.URL) (answer *http.Response, done func(), err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	if r.token != "" {
		request.Header.Set("Authorization", "Bearer "+r.token)
	}
	transport, err := transportTo(r.authority)
	if err != nil {
		return nil, nil, err
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: transport}
	answer, err = client.Do(request)
	return answer, client.CloseIdleConnections, err
}

// transportTo trusts the CAs in the file, if given, instead of the system's.
func transportTo(authority string) (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if authority == "" {
		return transport, nil
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, cli.Usagef("cannot read --certificate-authority: %v", err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(pem) {
		return nil, cli.Usagef("--certificate-authority %s has no certificate", authority)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	return transport, nil
}
