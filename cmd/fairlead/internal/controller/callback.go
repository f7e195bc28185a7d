package controller

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
)

// callbackSecret is the Secret with the key of callback tokens.
const callbackSecret = "fairlead-callback-key"

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
