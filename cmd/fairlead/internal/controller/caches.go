package controller

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// caches holds the objects that the controller watches. After acquireCaches it does not change until release.
type caches struct {
	operations, webhooks, secrets *cache.Handle
	accounts                      *cache.Handle // of service accounts; nil if Webhooks may use any
}

// acquireCaches watches the objects of the namespaces; none means all. shared is the option for the operations. Unless
// anyCredentials is set, Secrets that Webhooks may not use are not read from the API server. With an error, nothing is
// watched.
func acquireCaches(
	from *cache.Cache, namespaces []string, anyCredentials bool, shared cache.Option,
) (_ *caches, err error) {
	in := cache.Namespaces(namespaces...)
	c := &caches{}
	defer func() {
		if err != nil {
			c.release()
		}
	}()
	operation := v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation)
	webhook := v1alpha1.GroupVersion.WithKind(v1alpha1.KindWebhook)
	if c.operations, err = from.Acquire(operation, in, shared); err != nil {
		return nil, err
	}
	if c.webhooks, err = from.Acquire(webhook, in); err != nil {
		return nil, err
	}
	secrets := []cache.Option{in}
	if !anyCredentials {
		secrets = append(secrets, cache.Labels(v1alpha1.LabelWebhookCredentials+"=true"))
		if c.accounts, err = from.Acquire(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), in); err != nil {
			return nil, err
		}
	}
	if c.secrets, err = from.Acquire(corev1.SchemeGroupVersion.WithKind("Secret"), secrets...); err != nil {
		return nil, err
	}
	return c, nil
}

// accountStore returns the store of service accounts, or nil.
func (c *caches) accountStore() *cache.Store {
	if c.accounts == nil {
		return nil
	}
	return c.accounts.Store
}

func (c *caches) release() {
	for _, h := range []*cache.Handle{c.operations, c.webhooks, c.secrets, c.accounts} {
		if h != nil {
			h.Release()
		}
	}
}
