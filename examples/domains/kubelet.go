package main

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
)

// kubelet plays the nodes, since the control plane has none. A pod becomes ready between delay/2 and delay after its
// creation. Each pod has a fiber.
type kubelet struct {
	rt     *fairlead.Runtime
	engine *flow.Engine
	delay  time.Duration
}

func newKubelet(cfg *rest.Config, delay time.Duration, watch ...cache.Option) *kubelet {
	k := &kubelet{
		rt:     fairlead.New(cfg, fairlead.WithFieldOwner("kubelet"), fairlead.WithDrain(time.Millisecond)),
		engine: flow.NewEngine(flow.EngineOptions{}), delay: delay,
	}
	observe.Source[corev1.Pod](k.rt, pods, watch...)
	observe.On(k.rt, pods, k.onPod)
	k.rt.Flows(k.engine)
	return k
}

type podPacket struct {
	k   *kubelet
	pod *corev1.Pod
}

var runPod = flow.New("run-pod",
	flow.Step("pull-image", func(_ context.Context, f *flow.Fiber[podPacket]) flow.Next {
		h := fnv.New32a()
		_, _ = h.Write([]byte(f.Packet.pod.UID)) // a hash never returns an error
		d := f.Packet.k.delay
		return f.Delay(d/2 + time.Duration(float64(d/2)*float64(h.Sum32()%1000)/1000))
	}),
	flow.Step("ready", flow.Do(func(ctx context.Context, p *podPacket) error {
		pod := p.pod.DeepCopy()
		err := client.ModifyStatus(ctx, p.k.rt.Client(), pod, func(pod *corev1.Pod) error {
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			return nil
		})
		if apierrors.IsNotFound(err) || errors.Is(err, client.ErrReplaced) {
			return nil
		}
		return err
	}), flow.Retry(persist)),
)

func (k *kubelet) onPod(ctx context.Context, e observe.Event[corev1.Pod]) error {
	if e.Type != observe.Added || podReady(e.Object()) || e.Object().Labels[domainLabel] == "" {
		return nil
	}
	_, err := runPod.Start(ctx, k.engine, &podPacket{k: k, pod: e.Object()}, flow.StartOptions{Key: e.Key.String()})
	if errors.Is(err, flow.ErrClosed) {
		return nil
	}
	return err
}
