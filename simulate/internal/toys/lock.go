package toys

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaderAnnotation is where a lock of old clients says who leads.
const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// configMapLock is a lock as client-go had it before version 0.26. It is not safe for concurrent use.
type configMapLock struct {
	client   typedcorev1.ConfigMapInterface
	name     string
	identity string
	seen     *corev1.ConfigMap // when it was last read or written
}

// Get implements resourcelock.Interface.
func (l *configMapLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	cm, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	l.seen = cm
	var record resourcelock.LeaderElectionRecord
	text := []byte(cm.Annotations[leaderAnnotation])
	if len(text) == 0 {
		return &record, nil, nil
	}
	return &record, text, json.Unmarshal(text, &record)
}

// Create implements resourcelock.Interface.
func (l *configMapLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: l.name, Annotations: map[string]string{leaderAnnotation: string(text)},
	}}
	l.seen, err = l.client.Create(ctx, cm, metav1.CreateOptions{})
	return err
}

// Update implements resourcelock.Interface.
func (l *configMapLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.seen == nil {
		return errors.New("the lock was not read")
	}
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	cm := l.seen.DeepCopy()
	cm.Annotations = map[string]string{leaderAnnotation: string(text)}
	cm, err = l.client.Update(ctx, cm, metav1.UpdateOptions{})
	if err == nil {
		l.seen = cm
	}
	return err
}

// RecordEvent implements resourcelock.Interface.
func (l *configMapLock) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *configMapLock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *configMapLock) Describe() string { return "default/" + l.name }
