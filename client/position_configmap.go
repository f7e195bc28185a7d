package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/flow"
)

// ConfigMapPositions keeps the positions of durable fibers in one ConfigMap, which it creates. It is for flows that do
// not work on an object with a status. It is a [flow.Positions] for any number of keys.
//
//	positions := client.NewConfigMapPositions(c, client.Key{Namespace: "ops", Name: "migrations"})
//	opt := flow.StartOptions{Key: "prod/orders", Positions: positions}
//
// Each save is one patch with optimistic locking; a process makes one save at a time. All positions together must fit
// into a ConfigMap, 1 MiB. That is enough for hundreds of fibers; use [StatusPosition] for thousands.
// ConfigMapPositions is safe for concurrent use.
type ConfigMapPositions struct {
	c    *Client
	at   Key
	turn chan struct{} // a token for the one write at a time; concurrent writes would conflict
}

// NewConfigMapPositions returns the positions in the data of the ConfigMap that at names.
func NewConfigMapPositions(c *Client, at Key) *ConfigMapPositions {
	s := &ConfigMapPositions{c: c, at: at, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// Load implements [flow.Positions]. It asks the server, because another process may have made the last save.
func (s *ConfigMapPositions) Load(ctx context.Context, key string) (p flow.Position, found bool, err error) {
	cm := s.object()
	err = s.c.Live().Get(ctx, s.at, cm)
	if apierrors.IsNotFound(err) {
		return p, false, nil
	}
	if err != nil {
		return p, false, err
	}
	raw, found := cm.Data[dataKey(key)]
	if !found {
		return p, false, nil
	}
	if err := json.Unmarshal([]byte(raw), &p); err != nil {
		return flow.Position{}, false, fmt.Errorf("cannot read the position of %q in ConfigMap %s: %w", key, s.at, err)
	}
	return p, true, nil
}

// Save implements [flow.Positions].
func (s *ConfigMapPositions) Save(ctx context.Context, key string, p flow.Position) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("cannot encode the position of %q: %w", key, err)
	}
	c := s.c
	if p.Ended {
		ctx, c = afterEnd(ctx, c)
	}
	name, text := dataKey(key), string(raw)
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	set := func(cm *corev1.ConfigMap) error {
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[name] = text
		return nil
	}
	err = Modify(ctx, c, s.object(), set)
	if !apierrors.IsNotFound(err) {
		return err
	}
	made := s.object()
	made.Data = map[string]string{name: text}
	if err = c.Create(ctx, made); apierrors.IsAlreadyExists(err) { // another process was first
		err = Modify(ctx, c, s.object(), set)
	}
	return err
}

// Clear implements [flow.Positions].
func (s *ConfigMapPositions) Clear(ctx context.Context, key string) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = Modify(ctx, s.c, s.object(), func(cm *corev1.ConfigMap) error {
		delete(cm.Data, dataKey(key))
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// lock waits until no other write of this process is in progress.
func (s *ConfigMapPositions) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case <-s.turn:
		return func() { s.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *ConfigMapPositions) object() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.at.Namespace, Name: s.at.Name},
	}
}

// dataKey escapes the key of a fiber as a key of a ConfigMap. It writes each byte that a ConfigMap does not accept, and
// _ itself, as _ and two hexadecimal digits. Different keys remain different. The server refuses a key that is too
// long.
func dataKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}
