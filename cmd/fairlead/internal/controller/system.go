package controller

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

// callbackSecret is the Secret with the key of callback tokens.
const callbackSecret = "fairlead-callback-key"

// placeSystem decides the namespace of the callback key and the Lease. That is --system-namespace if set. It is own
// (the namespace of the pod or the context) if all namespaces are served, or several without own. Otherwise it is the
// first served namespace. A reader of Secrets in that namespace can forge callbacks of all served namespaces.
func (o *Options) placeSystem(own string) error {
	served := slices.Compact(slices.Sorted(slices.Values(o.namespaces)))
	switch {
	case o.systemNamespace != "":
		if wrong := validation.IsDNS1123Label(o.systemNamespace); len(wrong) > 0 {
			return cli.Usagef("--system-namespace %q is not the name of a namespace: %s", o.systemNamespace, wrong[0])
		}
	case len(served) == 0, len(served) > 1 && !slices.Contains(served, own):
		o.systemNamespace = own
	default:
		o.systemNamespace = o.namespaces[0]
	}
	return nil
}

// warnOfSystem logs a warning if the system namespace is one of several served namespaces.
func (c *controller) warnOfSystem(ctx context.Context) {
	if served := slices.Compact(slices.Sorted(slices.Values(c.namespaces))); len(served) > 1 &&
		slices.Contains(served, c.systemNamespace) {
		c.log.WarnContext(
			ctx, "callback key and Lease are in one of the served namespaces: a user who may read Secrets there can forge callbacks of "+
				"the others; set --system-namespace to a separate namespace", "namespace", c.systemNamespace,
		)
	}
}

// callbackKey returns the key of callback tokens, which all replicas share in a Secret. The first replica creates the
// Secret.
func callbackKey(ctx context.Context, calls *call.Client, namespace string) ([]byte, error) {
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // it never fails
	request := secretRequest(call.VerbCreate, namespace)
	request.Object = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: callbackSecret, Namespace: namespace},
		Data:       map[string][]byte{"key": fresh},
	}
	answer, err := call.Do(ctx, calls, request, call.Policy{})
	if apierrors.IsAlreadyExists(err) {
		answer, err = call.Do(ctx, calls, secretRequest(call.VerbGet, namespace), call.Policy{})
	}
	var secret corev1.Secret
	if err == nil {
		err = answer.Into(&secret)
	}
	if err == nil && len(secret.Data["key"]) < minKey {
		err = fmt.Errorf("it has no key of at least %d bytes: delete it, and a new one is created", minKey)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read secret %s/%s (--system-namespace says where it is): %w", namespace,
			callbackSecret, err)
	}
	return secret.Data["key"], nil
}

const minKey = 16

func secretRequest(verb call.Verb, namespace string) call.Request {
	return call.Request{
		Verb: verb, Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Kind: "Secret", Namespace: namespace,
		Name: callbackSecret,
	}
}

// beforeCalls waits until the forbidden targets are known, at most until the term ends. That must be before the first
// call.
func (c *controller) beforeCalls(ctx, term context.Context) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(term, end)()
	c.targets.await(ctx, term)
}
