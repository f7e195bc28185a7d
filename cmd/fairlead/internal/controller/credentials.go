package controller

import (
	"github.com/spf13/pflag"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

// Values of --credentials.
const (
	credentialsReleased = "released"
	credentialsAny      = "any"
)

// TargetOptions bounds the targets and the credentials of Webhooks.
type TargetOptions struct {
	// Allow lists loopback and private CIDRs and hosts that Webhooks may call.
	Allow []string
	// Deny lists CIDRs and hosts that Webhooks may not call. It takes precedence over Allow.
	Deny []string
	// Credentials is "released" or "any".
	Credentials string
}

// Flags adds the flags of Deny and Credentials.
func (o *TargetOptions) Flags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.Deny, "deny-target", nil,
		"`CIDR or host` that webhooks may not call, even if --allow-target permits it; may be repeated")
	f.StringVar(&o.Credentials, "credentials", credentialsReleased,
		"Secrets and service accounts that webhooks may use: `released` ones, by the label "+
			v1alpha1.LabelWebhookCredentials+" and the annotation "+v1alpha1.AnnotationWebhookAudiences+
			", or any of their namespace")
}

// check validates the options.
func (o *TargetOptions) check() error {
	if _, err := guard.NewWith(guard.Options{Deny: o.Deny, Allow: o.Allow}); err != nil {
		return cli.Usagef("%v", err)
	}
	if o.Credentials != "" && o.Credentials != credentialsReleased && o.Credentials != credentialsAny {
		return cli.Usagef("--credentials %q is neither %s nor %s", o.Credentials, credentialsReleased, credentialsAny)
	}
	return nil
}

// anyCredentials reports whether Webhooks may use all Secrets and service accounts of their namespace.
func (o *TargetOptions) anyCredentials() bool { return o.Credentials == credentialsAny }
