package controller

import (
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

// Values of --credentials.
const (
	credentialsReleased = "released"
	credentialsAny      = "any"
)

// TargetFlags adds the flags that bound the targets and credentials of Webhooks. Every controller has them.
func (o *Options) TargetFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.DenyTargets, "deny-target", nil,
		"`CIDR or host` that webhooks may not call, even if --allow-target permits it; may be repeated")
	f.StringVar(&o.Credentials, "credentials", credentialsReleased,
		"Secrets and service accounts that webhooks may use: `released` ones, by the label "+
			v1alpha1.LabelWebhookCredentials+" and the annotation "+v1alpha1.AnnotationWebhookAudiences+
			", or any of their namespace")
}

// checkTargets validates these flags.
func (o *Options) checkTargets() error {
	if _, err := guard.NewWith(guard.Options{Deny: o.DenyTargets, Allow: o.AllowTargets}); err != nil {
		return cli.Usagef("%v", err)
	}
	if o.Credentials != "" && o.Credentials != credentialsReleased && o.Credentials != credentialsAny {
		return cli.Usagef("--credentials %q is neither %s nor %s", o.Credentials, credentialsReleased, credentialsAny)
	}
	return nil
}

// acquireCredentials watches the Secrets and service accounts that webhooks may use. Other Secrets are not read from
// the API server.
func (c *controller) acquireCredentials(in cache.Option) (err error) {
	secrets := []cache.Option{in}
	if c.Credentials != credentialsAny {
		secrets = append(secrets, cache.Labels(v1alpha1.LabelWebhookCredentials+"=true"))
		if c.accounts, err = c.rt.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), in); err != nil {
			return err
		}
	}
	c.secrets, err = c.rt.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("Secret"), secrets...)
	return err
}

func (c *controller) accountStore() *cache.Store {
	if c.accounts == nil {
		return nil
	}
	return c.accounts.Store
}
