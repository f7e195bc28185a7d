package simnode

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newPod(policy corev1.RestartPolicy, annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u", Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			RestartPolicy: policy,
			InitContainers: []corev1.Container{
				{Name: "first"}, {Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{Name: "web", Image: "web:v1"}, {Name: "log"}},
		},
	}
	for pair := range slices.Chunk(annotations, 2) {
		pod.Annotations[pair[0]] = pair[1]
	}
	return pod
}

// summary describes a status, such as "Running ready 0".
func summary(pod *corev1.Pod) string {
	ready := "not ready"
	if i := indexOf(pod, corev1.PodReady); i >= 0 && pod.Status.Conditions[i].Status == corev1.ConditionTrue {
		ready = "ready"
	}
	var states []string
	for _, c := range pod.Status.ContainerStatuses {
		switch s := c.State; {
		case s.Running != nil:
			states = append(states, "running")
		case s.Waiting != nil:
			states = append(states, s.Waiting.Reason)
		case s.Terminated != nil:
			states = append(states, fmt.Sprint("exit ", s.Terminated.ExitCode))
		}
	}
	slices.Sort(states)
	states = slices.Compact(states)
	restarts := int32(0)
	if len(pod.Status.ContainerStatuses) > 0 {
		restarts = pod.Status.ContainerStatuses[0].RestartCount
	}
	return fmt.Sprintf("%s %s %s %d", pod.Status.Phase, ready, strings.Join(states, ","), restarts)
}

func TestAdvance(t *testing.T) {
	t.Parallel()
	type step struct {
		after  time.Duration // since the previous step
		status string
		wait   time.Duration
	}
	running := step{0, "Running ready running 0", 0}
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		steps []step
	}{
		"runs forever":   {newPod("Always"), []step{running, running}},
		"no policy":      {newPod(""), []step{running, running}},
		"a job succeeds": {newPod("Never"), []step{running, {0, "Succeeded not ready exit 0 0", 0}}},
		"on failure":     {newPod("OnFailure"), []step{running, {0, "Succeeded not ready exit 0 0", 0}}},
		"a job fails":    {newPod("Never", ExitCode, "3"), []step{running, {0, "Failed not ready exit 3 0", 0}}},
		"runs for a time": {newPod("Never", RunFor, "5s"), []step{
			running,
			{2 * time.Second, "Running ready running 0", 3 * time.Second},
			{3 * time.Second, "Succeeded not ready exit 0 0", 0},
		}},
		"crashes": {newPod("Always", ExitCode, "1"), []step{
			running,
			{0, "Running not ready CrashLoopBackOff 0", 10 * time.Second},
			{4 * time.Second, "Running not ready CrashLoopBackOff 0", 6 * time.Second},
			{6 * time.Second, "Running ready running 1", 0},
			{0, "Running not ready CrashLoopBackOff 1", 20 * time.Second},
			{20 * time.Second, "Running ready running 2", 0},
		}},
		"exits and is restarted": {
			newPod("Always", ExitCode, "0"),
			[]step{running, {0, "Running not ready CrashLoopBackOff 0", 10 * time.Second}},
		},
		"retries on failure": {
			newPod("OnFailure", ExitCode, "1"),
			[]step{running, {0, "Running not ready CrashLoopBackOff 0", 10 * time.Second}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := PlanOf(tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			for i, s := range tc.steps {
				now = now.Add(s.after)
				if wait := p.Advance(tc.pod, "", now); summary(tc.pod) != s.status || wait != s.wait {
					t.Errorf("step %d: %s for %s, want %s for %s", i, summary(tc.pod), wait, s.status, s.wait)
				}
			}
		})
	}
}

// A pod waits for the objects that it references, and for its readiness gates.
func TestAdvanceWaits(t *testing.T) {
	t.Parallel()
	pod := newPod("Always")
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/ready"}}
	p, err := PlanOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ missing, gate, want string }{
		{`Secret "s" not found`, "False", "Pending not ready CreateContainerConfigError 0"},
		{"", "False", "Running not ready running 0"},
		{"", "True", "Running ready running 0"},
		{"", "False", "Running not ready running 0"},
	} {
		SetCondition(pod, "example.com/ready", corev1.ConditionStatus(step.gate), "", "")
		p.Advance(pod, step.missing, time.Now())
		if got := summary(pod); got != step.want {
			t.Errorf("%+v: %s", step, got)
		}
	}
	if s := pod.Status.InitContainerStatuses; len(s) != 2 || s[0].State.Terminated == nil || s[1].State.Running == nil {
		t.Errorf("the init containers are %+v", s)
	}
	Terminate(pod, Killed, time.Now())
	if got := summary(pod); got != "Failed not ready exit 143 0" ||
		pod.Status.InitContainerStatuses[1].State.Terminated == nil {
		t.Errorf("a deleted pod is %s, %+v", got, pod.Status.InitContainerStatuses)
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	for _, annotations := range [][]string{
		{ExitCode, "256"},
		{ExitCode, "-1"},
		{ExitCode, ""},
		{RunFor, "5"},
		{RunFor, "-1s"},
	} {
		if _, err := PlanOf(newPod("Always", annotations...)); err == nil || !strings.Contains(err.Error(), annotations[0]) {
			t.Errorf("%v: %v", annotations, err)
		}
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	name := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	pod := newPod("Always")
	pod.Spec.Volumes = []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: name("a")}}},
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "b"}}},
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "no", Optional: new(true)}}},
		{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name("c")}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: name("d")}},
		}}}},
	}
	pod.Spec.InitContainers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name("e")}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name("f")}},
	}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "X", Value: "x"},
		{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name("g")}}},
		{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name("h")}}},
	}
	var got strings.Builder
	for _, ref := range References(pod) {
		fmt.Fprintf(&got, "%c%s ", ref.Kind[0], ref.Name)
	}
	if want := "Ca Sb Cc Sd Ce Sf Cg Sh "; got.String() != want {
		t.Errorf("the pod needs %s, want %s", &got, want)
	}
}
