package simnode

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// NodeIP is the address of the node.
	NodeIP = "127.0.0.1"

	// Killed is the exit code of a process that SIGTERM ended.
	Killed = 143

	firstBackOff = 10 * time.Second // of a container that exits again and again, doubled each time
	maxBackOff   = 5 * time.Minute
)

// Plan says how the containers of a pod run.
type Plan struct {
	exits    bool // they exit by themselves
	code     int32
	after    time.Duration
	restarts bool // after an exit with code
}

// PlanOf returns the plan of a pod, or an error about an annotation.
func PlanOf(pod *corev1.Pod) (Plan, error) {
	p := Plan{exits: pod.Spec.RestartPolicy == corev1.RestartPolicyNever ||
		pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure}
	if text, ok := pod.Annotations[ExitCode]; ok {
		code, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return Plan{}, fmt.Errorf("cannot read annotation %s: %q is no exit code from 0 to 255", ExitCode, text)
		}
		p.code, p.exits = int32(code), true
	}
	if text, ok := pod.Annotations[RunFor]; ok {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return Plan{}, fmt.Errorf("cannot read annotation %s: %q is no duration, such as 10s", RunFor, text)
		}
		p.after = d
	}
	p.restarts = pod.Spec.RestartPolicy == corev1.RestartPolicyAlways || pod.Spec.RestartPolicy == "" ||
		pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && p.code != 0
	return p, nil
}

// Advance changes the status of a pod to the one that follows at a time, at most one step. It returns how long that
// remains; 0 if it remains until an event, or if the next step is due. missing is an object that the pod waits for.
func (p Plan) Advance(pod *corev1.Pod, missing string, now time.Time) time.Duration {
	at := metav1.NewTime(now)
	s := &pod.Status
	s.ObservedGeneration = pod.Generation
	if s.StartTime == nil {
		s.StartTime = &at
		s.HostIP, s.HostIPs = NodeIP, []corev1.HostIP{{IP: NodeIP}}
	}
	switch {
	case missing != "":
		s.Phase = corev1.PodPending
		setContainers(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CreateContainerConfigError", Message: missing,
		}})
		setReady(pod, "ContainersNotReady", missing)
		return 0
	case s.Phase != corev1.PodRunning:
		start(pod, now)
		return 0
	}
	var changed time.Time // the last start or exit of the first container
	running := false
	if len(s.ContainerStatuses) > 0 {
		switch c := s.ContainerStatuses[0]; {
		case c.State.Running != nil:
			running, changed = true, c.State.Running.StartedAt.Time
		case c.LastTerminationState.Terminated != nil:
			changed = c.LastTerminationState.Terminated.FinishedAt.Time
		}
	}
	restarts := int32(0)
	if len(s.ContainerStatuses) > 0 {
		restarts = s.ContainerStatuses[0].RestartCount
	}
	switch {
	case running && !p.exits:
		setReady(pod, "", "") // readiness gates may have changed
		return 0
	case running:
		if wait := changed.Add(p.after).Sub(now); p.after > 0 && wait > 0 {
			setReady(pod, "", "")
			return wait
		}
		if !p.restarts {
			Terminate(pod, p.code, now)
			return 0
		}
		crash(pod, p.code, now)
		return backOff(restarts)
	default:
		if wait := changed.Add(backOff(restarts)).Sub(now); wait > 0 {
			return wait
		}
		for i := range s.ContainerStatuses {
			s.ContainerStatuses[i].RestartCount++
		}
		start(pod, now)
		return 0
	}
}

func backOff(restarts int32) time.Duration {
	return min(firstBackOff<<min(restarts, 10), maxBackOff)
}

// start makes a pod run.
func start(pod *corev1.Pod, now time.Time) {
	at := metav1.NewTime(now)
	s := &pod.Status
	s.Phase = corev1.PodRunning
	if s.PodIP == "" {
		s.PodIP = addressOf(pod)
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	s.InitContainerStatuses = nil
	for _, c := range pod.Spec.InitContainers {
		state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", StartedAt: at, FinishedAt: at, ContainerID: idOf(pod, c.Name),
		}}
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways { // a sidecar
			state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, statusOf(pod, c, state, true))
	}
	setContainers(pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}})
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodScheduled,
	} {
		SetCondition(pod, kind, corev1.ConditionTrue, "", "")
	}
	setReady(pod, "", "")
}

// crash makes the containers of a running pod wait for their restart.
func crash(pod *corev1.Pod, code int32, now time.Time) {
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		c.LastTerminationState = corev1.ContainerState{Terminated: exited(pod, c, code, now)}
		c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off " + backOff(c.RestartCount).String() + " restarting failed container",
		}}
		c.Ready, c.Started = false, new(false)
	}
	setReady(pod, "ContainersNotReady", "containers have exited")
}

// Terminate ends a pod for good.
func Terminate(pod *corev1.Pod, code int32, now time.Time) {
	pod.Status.Phase = corev1.PodSucceeded
	reason := "PodCompleted"
	if code != 0 {
		pod.Status.Phase, reason = corev1.PodFailed, "PodFailed"
	}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		c.State = corev1.ContainerState{Terminated: exited(pod, c, code, now)}
		c.Ready, c.Started = false, new(false)
	}
	for i := range pod.Status.InitContainerStatuses { // sidecars
		c := &pod.Status.InitContainerStatuses[i]
		if c.State.Running != nil {
			c.State = corev1.ContainerState{Terminated: exited(pod, c, 0, now)}
			c.Ready, c.Started = false, new(false)
		}
	}
	setReady(pod, reason, "")
}

func exited(pod *corev1.Pod, c *corev1.ContainerStatus, code int32, now time.Time) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: "Completed", FinishedAt: metav1.NewTime(now), ContainerID: idOf(pod, c.Name),
	}
	if code != 0 {
		t.Reason = "Error"
	}
	if c.State.Running != nil {
		t.StartedAt = c.State.Running.StartedAt
	}
	return t
}

// setContainers gives all containers a state, and keeps their restarts.
func setContainers(pod *corev1.Pod, state corev1.ContainerState) {
	old := pod.Status.ContainerStatuses
	pod.Status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		now := statusOf(pod, c, state, state.Running != nil)
		i := slices.IndexFunc(old, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		if i >= 0 {
			now.RestartCount, now.LastTerminationState = old[i].RestartCount, old[i].LastTerminationState
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, now)
	}
}

func statusOf(pod *corev1.Pod, c corev1.Container, state corev1.ContainerState, ready bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, State: state, Ready: ready, Started: new(state.Running != nil),
	}
	if state.Waiting == nil {
		s.ImageID, s.ContainerID = c.Image, idOf(pod, c.Name)
	}
	return s
}

func idOf(pod *corev1.Pod, container string) string {
	return "simulated://" + string(pod.UID) + "/" + container
}

// setReady sets the conditions ContainersReady and Ready. An empty reason means that the containers are ready; then the
// readiness gates decide.
func setReady(pod *corev1.Pod, reason, message string) {
	status := corev1.ConditionTrue
	if reason != "" {
		status = corev1.ConditionFalse
	}
	SetCondition(pod, corev1.ContainersReady, status, reason, message)
	for _, gate := range pod.Spec.ReadinessGates {
		i := indexOf(pod, gate.ConditionType)
		if status == corev1.ConditionTrue && (i < 0 || pod.Status.Conditions[i].Status != corev1.ConditionTrue) {
			status, reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
			message = fmt.Sprintf("readiness gate %q is not true", gate.ConditionType)
		}
	}
	SetCondition(pod, corev1.PodReady, status, reason, message)
}

// SetCondition sets a condition. It keeps the time of the last transition if the status stays.
func SetCondition(
	pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string,
) {
	now := corev1.PodCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
		ObservedGeneration: pod.Generation,
	}
	i := indexOf(pod, kind)
	if i < 0 {
		pod.Status.Conditions = append(pod.Status.Conditions, now)
		return
	}
	if old := pod.Status.Conditions[i]; old.Status == status {
		now.LastTransitionTime = old.LastTransitionTime
	}
	pod.Status.Conditions[i] = now
}

func indexOf(pod *corev1.Pod, kind corev1.PodConditionType) int {
	return slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
}

// IsFinished reports whether no container of a pod will ever run again.
func IsFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// addressOf derives an address from the uid. Few pods share one.
func addressOf(pod *corev1.Pod) string {
	if pod.Spec.HostNetwork {
		return NodeIP
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(pod.UID))
	n := h.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>16&0x7f, n>>8&0xff, 1+n%254)
}

// Reference is a ConfigMap or Secret that a pod cannot start without.
type Reference struct{ Kind, Name string }

// References returns those of a pod.
func References(pod *corev1.Pod) (refs []Reference) {
	add := func(kind, name string, optional *bool) {
		if name != "" && (optional == nil || !*optional) {
			refs = append(refs, Reference{kind, name})
		}
	}
	for _, v := range pod.Spec.Volumes {
		if s := v.ConfigMap; s != nil {
			add("ConfigMap", s.Name, s.Optional)
		}
		if s := v.Secret; s != nil {
			add("Secret", s.SecretName, s.Optional)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add("ConfigMap", s.ConfigMap.Name, s.ConfigMap.Optional)
			}
			if s.Secret != nil {
				add("Secret", s.Secret.Name, s.Secret.Optional)
			}
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, e := range c.EnvFrom {
			if s := e.ConfigMapRef; s != nil {
				add("ConfigMap", s.Name, s.Optional)
			}
			if s := e.SecretRef; s != nil {
				add("Secret", s.Name, s.Optional)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if s := e.ValueFrom.ConfigMapKeyRef; s != nil {
				add("ConfigMap", s.Name, s.Optional)
			}
			if s := e.ValueFrom.SecretKeyRef; s != nil {
				add("Secret", s.Name, s.Optional)
			}
		}
	}
	return refs
}
