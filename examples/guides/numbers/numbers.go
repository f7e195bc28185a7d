// Package numbers gives each object a number that no other object of the cluster has.
package numbers

import (
	"context"
	"fmt"
	"iter"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
)

// Pool has the numbers from Min to Max. A number in use has a ConfigMap in Namespace. The API server stores only one
// object of a name, so no two callers get the same number.
type Pool struct {
	Client    *client.Client
	Namespace string
	Min, Max  int
}

const label = "example.com/idempotency-key"

// Take takes a free number. It returns the same one for the same key, so alloc.Once may call it again after a crash.
func (p *Pool) Take(ctx context.Context, key string) (string, error) {
	for claim, err := range p.claims(ctx, key) {
		if err != nil {
			return "", err
		}
		return claim.Data["number"], nil
	}
	for n := p.Min; n <= p.Max; n++ {
		number := strconv.Itoa(n)
		err := p.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace, Name: "number-" + number, Labels: map[string]string{label: key},
			},
			Data: map[string]string{"number": number},
		})
		if !apierrors.IsAlreadyExists(err) {
			return number, err
		}
	}
	return "", fmt.Errorf("all numbers from %d to %d are in use", p.Min, p.Max)
}

// Return gives back the number of a key. It does nothing if there is none.
func (p *Pool) Return(ctx context.Context, key, _ string) error {
	for claim, err := range p.claims(ctx, key) {
		if err == nil {
			err = p.Client.Delete(ctx, claim, client.SameUID(), client.IgnoreNotFound())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// claims asks the API server, since a cache may lack the claim of a process that has just crashed.
func (p *Pool) claims(ctx context.Context, key string) iter.Seq2[*corev1.ConfigMap, error] {
	return client.List[corev1.ConfigMap](ctx, p.Client, client.InNamespace(p.Namespace), client.Labels(label+"="+key),
		client.Live())
}
