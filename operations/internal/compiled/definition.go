package compiled

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Revision identifies a version of a Webhook.
func Revision(w *v1alpha1.Webhook) string { return fmt.Sprint(w.UID, "/", w.Generation) }

// Generation returns the generation of a compiled Webhook, or 0 if unknown.
func Generation(hook *webhook.Compiled) int64 {
	revision := hook.Definition().Revision
	n, err := strconv.ParseInt(revision[strings.LastIndexByte(revision, '/')+1:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// definition converts the resource. Unset fields get the defaults of package webhook, which are the same.
func definition(w *v1alpha1.Webhook) webhook.Definition {
	s := &w.Spec
	d := webhook.Definition{
		Namespace: w.Namespace, Name: w.Name, Revision: Revision(w),
		Mode: webhook.Mode(s.Mode),
		Request: webhook.Request{
			Method: s.Request.Method, URL: s.Request.URL, Headers: s.Request.Headers, Body: s.Request.Body,
		},
		RequestTimeout:    s.RequestTimeout.Duration,
		CorrelationHeader: s.CorrelationHeader,
		Response: webhook.Response{
			Success: s.Response.Success, Gone: s.Response.Gone, Retry: s.Response.Retry,
			Location: s.Response.Location, Error: s.Response.Error,
		},
		Poll: webhook.Poll{
			Interval: s.Poll.Interval.Duration, Succeeded: s.Poll.Succeeded, Failed: s.Poll.Failed, Error: s.Poll.Error,
		},
		Retry: webhook.RetryPolicy{
			MaxAttempts:     int(s.Retry.MaxAttempts),
			InitialInterval: s.Retry.InitialInterval.Duration,
			MaxInterval:     s.Retry.MaxInterval.Duration,
		},
		Timeout:       s.Timeout.Duration,
		Concurrency:   int(s.Concurrency),
		RatePerSecond: float64(s.RatePerSecond),
		Breaker:       webhook.Breaker{Failures: int(s.Breaker.Failures), OpenFor: s.Breaker.OpenFor.Duration},
	}
	if s.Signing != nil {
		d.SigningSecret = s.Signing.SecretRef.Name
	}
	if s.TLS != nil {
		d.TLS.ServerName = s.TLS.ServerName
		if s.TLS.CASecretRef != nil {
			d.TLS.CASecret = s.TLS.CASecretRef.Name
		}
	}
	d.Auth = auth(s.Auth)
	return d
}

func auth(a *v1alpha1.WebhookAuth) *webhook.Auth {
	if a == nil {
		return nil
	}
	out := &webhook.Auth{}
	secret := func(s *v1alpha1.SecretAuth) string {
		if s == nil {
			return ""
		}
		return s.SecretRef.Name
	}
	out.Basic, out.Bearer, out.MTLS = secret(a.Basic), secret(a.Bearer), secret(a.MTLS)
	if o := a.OAuth2; o != nil {
		out.OAuth2 = &webhook.OAuth2{TokenURL: o.TokenURL, Scopes: o.Scopes, Secret: o.SecretRef.Name}
	}
	if t := a.ServiceAccountToken; t != nil {
		out.ServiceAccountToken = &webhook.ServiceAccountToken{Audience: t.Audience, ServiceAccountName: t.ServiceAccountName}
	}
	return out
}
